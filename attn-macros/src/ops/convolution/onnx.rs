//! A convolution in ONNX, whose channels are the second axis.

use super::Convolution;
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call, call_with, list};
use crate::spec::Size;

impl Convolution {
    pub(super) fn write_onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let (from, to) = (of.operand_type(0), of.result_type());
        let rank = from.axes.len();
        let others = rank - 1 - self.kind.axes;
        let is_first = self.layout == "First";
        // From the order of the operand to one with the channels in front, and back.
        let mut order: Vec<usize> = (0..rank).collect();
        let mut back = order.clone();
        if !is_first {
            order[others..].rotate_right(1);
            back[others..].rotate_left(1);
        }
        let ordered =
            |axes: &[Axis]| -> Vec<Axis> { order.iter().map(|axis| axes[*axis].clone()).collect() };
        let (from, to) = (ordered(&from.axes), ordered(&to.axes));
        let mut x = of.operand(0).transpose(&order);
        if others != 1 {
            let images = Term::ints([if others == 0 { 1 } else { -1 }]);
            let image = of.shape(&from[others..]);
            x = call(
                "Reshape",
                [x, call_with("Concat", "axis=0", [images, image])],
            );
        }
        let weight = of.weight(&self.place, "weight");
        let bias = self.bias.then(|| of.weight(&self.place, "bias"));
        let operands = [x, weight].into_iter().chain(bias);
        let op = if self.kind.is_transposed {
            "ConvTranspose"
        } else {
            "Conv"
        };
        let attributes = self.attributes(of);
        let mut y = call_with(op, attributes, operands);
        if others != 1 {
            let shape = of.shape(&to);
            y = call("Reshape", [y, shape]);
        }
        Ok(y.transpose(&back))
    }

    fn attributes(&self, of: &mut OnnxNode<'_, '_>) -> String {
        let mut all = |size: fn(&super::Slide) -> &Size| -> Vec<String> {
            self.slides
                .iter()
                .map(|slide| of.size(size(slide)))
                .collect()
        };
        let [kernel, stride, dilation] = [
            all(|slide| &slide.kernel),
            all(|slide| &slide.stride),
            all(|slide| &slide.dilation),
        ];
        let pads = [all(|slide| &slide.before), all(|slide| &slide.after)].concat();
        let more = self.kind.is_transposed.then(|| all(|slide| &slide.more));
        let more = more.map_or_else(String::new, |more| {
            format!(",output_padding={}", list(more))
        });
        let group = of.size(&self.groups);
        format!(
            "kernel_shape={},strides={},dilations={},pads={},group={group}{more}",
            list(kernel),
            list(stride),
            list(dilation),
            list(pads),
        )
    }
}
