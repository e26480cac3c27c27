//! Every operation, with inputs of two sizes from one file.

use std::path::Path;

use attn::{dfdx::prelude::*, model, onnx::OnnxError};
use support::{
    cases::{ids, lens_of, lens_up_to, marks, scatter, tensor},
    onnx::Calls,
};

/// Cases with operations that ONNX has no words for.
const REFUSED: [&str; 5] = [
    "attends_of_heads_that_talk",
    "norms_and_slices_between_two_maps",
    "ropes_of_the_length",
    "rotations",
    "switch",
];

#[track_caller]
fn check(name: &str, calls: Calls, export: impl FnOnce(&Path) -> Result<(), OnnxError>) {
    if !REFUSED.contains(&name) {
        return calls.check(export);
    }
    let error = export(Path::new("refused.onnx")).unwrap_err();
    assert!(matches!(error, OnnxError::Unsupported { .. }), "{error}");
}

macro_rules! exports {
    ($($name:ident { $($model:tt)* } ($($axis:ident: $size:expr),*) ($first:ident: $x:expr $(, $other:expr)*) $(reads $input:ident)?;)*) => {$(
        #[test]
        #[allow(unused_variables)]
        fn $name() {
            model! { $($model)* }

            type E = f32;
            let mut model = Cpu::default().build_module::<M, E>();
            scatter(&mut model);
            let mut calls = Calls::default();
            for more in 0..2 {
                $(let $axis = $size + more;)*
                let $first = $x;
                // The larger input may be too long for a table, or no multiple of a part.
                if let Ok(y) = model.try_forward(exports!(@input $first.clone() $(, $other)*)) {
                    calls = calls.call(&[&$first $(, &$other)*], &y);
                }
            }
            check(stringify!($name), calls, |path| model.export_onnx(path));
        }
    )*};
    (@input $first:expr) => { $first };
    (@input $($input:expr),+) => { ($($input),+) };
}

mod operations {
    use super::*;
    support::operations!(exports);
}

mod layer_options {
    use super::*;
    support::layer_options!(exports);
}

mod reductions {
    use super::*;
    support::reductions!(exports);
}

mod selections {
    use super::*;
    support::selections!(exports);
}

mod gathers {
    use super::*;
    support::gathers!(exports);
}

mod shapes {
    use super::*;
    support::shapes!(exports);
}

mod experts {
    use super::*;
    support::experts!(exports);
}

mod elementwise {
    use super::*;
    support::elementwise!(exports);
}

mod products_of_values {
    use super::*;
    support::products_of_values!(exports);
}

/// The type of the inputs of these cases is that of the model.
mod inferred {
    use super::*;

    fn tensor<S: Shape>(name: &str, shape: S) -> Tensor<S, f32, Cpu> {
        super::tensor(name, shape)
    }

    mod attends {
        use super::*;
        support::attends!(exports);
    }

    mod ropes {
        use super::*;
        support::ropes!(exports);
    }

    mod body_values {
        use super::*;
        support::body_values!(exports);
    }

    mod dots {
        use super::*;
        support::dots!(exports);
    }
}
