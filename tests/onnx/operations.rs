//! Every operation, with inputs of two sizes from one file.

use attn::{dfdx::prelude::*, model};
use support::{
    cases::{ids, lens_of, lens_up_to, marks, scatter, tensor},
    onnx::Calls,
};

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
            calls.check(|path| model.export_onnx(path));
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

mod parts_of_any_length {
    use super::*;
    support::parts_of_any_length!(exports);
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

mod computed_ids {
    use super::*;
    support::computed_ids!(exports);
}

mod shapes {
    use super::*;
    support::shapes!(exports);
}
