//! Files of other formats than safetensors.

use super::*;
use attn::{attention, checkpoint};

attention! {
    struct Saved<heads = 2, d_model = 8>;
}

#[test]
fn npz_archives_of_dfdx_are_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let mut layer = Saved::<f32, Cpu>::build(&Cpu::default());
    layer.save(&path).unwrap();
    let refused = checkpoint::load(&mut layer, &path, LoadOptions::default()).unwrap_err();
    assert_eq!(
        refused.problem.to_string(),
        "it is an npz archive of NumPy, which dfdx's `model.save` writes, not a safetensors file: \
         `model.load` of dfdx's `LoadFromNpz` reads it; `attn::checkpoint::save` writes what is read here"
    );
    layer.load(&path).unwrap();
}
