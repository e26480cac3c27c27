//! Traits for the members of a tuple of inputs: their messages name the member with a wrong type and the expected type.

macro_rules! fits {
    ($(#[$doc:meta])* $Fits:ident, $message:literal, $label:literal $(, $note:literal)?) => {
        $(#[$doc])*
        ///
        /// Every type fits only itself. The trait exists for its message, as rustc shortens the type of a whole tuple.
        #[diagnostic::on_unimplemented(
            message = $message,
            label = $label
            $(, note = $note)?
        )]
        pub trait $Fits<Layer, Expected>: Sized {
            /// The same value.
            fn fit(self) -> Expected;
        }

        impl<Layer, X> $Fits<Layer, X> for X {
            fn fit(self) -> X {
                self
            }
        }
    };
}

fits! {
    /// A first input of the type `Expected`.
    XFits, "`{Layer}` takes `x` as `{Expected}`, not `{Self}`", "wrong `x`"
}

fits! {
    /// A second input of the type `Expected`.
    ContextFits, "`{Layer}` takes `context` as `{Expected}`, not `{Self}`", "wrong `context`",
    "`context` has the batch axis of `x`, the elements and the device of the layer, and no tape: \
     `let (context, tape) = context.split_tape();` and then `x.put_tape(tape)`"
}

fits! {
    /// A third input of the type `Expected`.
    ValuesFits, "`{Layer}` takes `values` as `{Expected}`, not `{Self}`", "wrong `values`",
    "`values` has the batch axis of `x`, the length of `context`, the elements and the device of the layer, and no tape: \
     `let (values, tape) = values.split_tape();` and then `x.put_tape(tape)`"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_fits_itself_and_keeps_its_value() {
        struct Layer;
        let x: u8 = XFits::<Layer, u8>::fit(7);
        assert_eq!(ContextFits::<Layer, u8>::fit(x), 7);
        assert_eq!(ValuesFits::<Layer, u8>::fit(x), 7);
    }
}
