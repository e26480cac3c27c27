//! The messages of an ONNX file, in the wire format of protocol buffers.
//!
//! An export writes a dozen fields of eight messages, and reads none. That is less code than the derives of a library would need, and no
//! dependency. The numbers of the fields are those of `onnx.proto3`.

/// The bytes of a message.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

/// A field that has a length in front of its bytes.
const BYTES: u64 = 2;

impl Message {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn int(&mut self, field: u64, value: i64) -> &mut Self {
        self.varint(field << 3);
        // A negative number is written as its two's complement.
        self.varint(value as u64)
    }

    pub(super) fn string(&mut self, field: u64, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn message(&mut self, field: u64, message: &Message) -> &mut Self {
        self.bytes(field, &message.0)
    }

    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.head(field, bytes.len());
        self.0.extend(bytes);
        self
    }

    /// The number and the type of a field, in front of its bytes.
    pub(super) fn head(&mut self, field: u64, len: usize) -> &mut Self {
        self.varint(field << 3 | BYTES).varint(len as u64)
    }

    fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }
}

/// The type of the numbers of a tensor: `TensorProto.DataType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DataType {
    Float = 1,
    Int64 = 7,
    Bool = 9,
    Double = 11,
}

/// The value of an attribute of a node.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Attribute<'a> {
    Int(i64),
    Ints(Vec<i64>),
    Float(f64),
    Text(&'a str),
}

/// `AttributeProto`
pub(super) fn attribute(name: &str, value: &Attribute<'_>) -> Message {
    let mut message = Message::default();
    message.string(1, name);
    let ty = match value {
        Attribute::Float(value) => {
            message.varint(2 << 3 | 5);
            message.0.extend((*value as f32).to_le_bytes());
            1
        }
        Attribute::Int(value) => {
            message.int(3, *value);
            2
        }
        Attribute::Text(text) => {
            message.string(4, text);
            3
        }
        Attribute::Ints(values) => {
            values.iter().for_each(|value| {
                message.int(8, *value);
            });
            7
        }
    };
    message.int(20, ty);
    message
}

/// `NodeProto`
pub(super) fn node(
    op: &str,
    attributes: &[(&str, Attribute<'_>)],
    inputs: &[String],
    outputs: &[&str],
) -> Message {
    let mut message = Message::default();
    for input in inputs {
        message.string(1, input);
    }
    for output in outputs {
        message.string(2, output);
    }
    // It has the name of its result.
    message
        .string(3, outputs.last().unwrap_or(&""))
        .string(4, op);
    for (name, value) in attributes {
        message.message(5, &attribute(name, value));
    }
    message
}

/// `TensorProto`
pub(super) fn tensor(name: &str, ty: DataType, shape: &[usize], bytes: &[u8]) -> Message {
    let mut message = Message::default();
    for size in shape {
        message.int(1, *size as i64);
    }
    message.int(2, ty as i64).string(8, name).bytes(9, bytes);
    message
}

/// An axis of an input or an output.
#[derive(Clone, Debug)]
pub(super) enum Axis<'a> {
    Length(i64),
    /// An axis of any length.
    Name(&'a str),
}

/// `ValueInfoProto`
pub(super) fn value_info(name: &str, ty: DataType, axes: &[Axis<'_>]) -> Message {
    let mut shape = Message::default();
    for axis in axes {
        let mut dimension = Message::default();
        match axis {
            Axis::Length(length) => dimension.int(1, *length),
            Axis::Name(name) => dimension.string(2, name),
        };
        shape.message(1, &dimension);
    }
    let mut tensor = Message::default();
    tensor.int(1, ty as i64).message(2, &shape);
    let mut of = Message::default();
    of.message(1, &tensor);
    let mut message = Message::default();
    message.string(1, name).message(2, &of);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_the_examples_of_protocol_buffers() {
        let mut message = Message::default();
        message.int(1, 150);
        assert_eq!(message.as_bytes(), [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.message(3, &message);
        assert_eq!(outer.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut text = Message::default();
        text.string(2, "testing");
        let expected = [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67];
        assert_eq!(text.as_bytes(), expected);
        let mut negative = Message::default();
        negative.int(1, -2);
        let expected = [8, 254, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert_eq!(negative.as_bytes(), expected);
    }
}
