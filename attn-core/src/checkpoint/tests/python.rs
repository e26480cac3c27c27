//! Files of Python's `safetensors`.

use dfdx::{nn::modules, prelude::*};

use super::STRICT;
use crate::checkpoint::Archive;

/// `safetensors.numpy.save({"weight": array([[1.5], [-2.25]], float32), "bias": array([0.1, 3.0], float32)},
/// metadata={"format": "np"})`, version 0.8.0.
const FILE: &[u8] = b"\x98\x00\x00\x00\x00\x00\x00\x00\
    {\"__metadata__\":{\"format\":\"np\"},\
    \"bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\
    \"weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]}}   \
    \xcd\xcc\xcc=\x00\x00@@\x00\x00\xc0?\x00\x00\x10\xc0";

#[test]
fn a_file_written_by_python_loads() {
    let archive = Archive::from_bytes("python", FILE).unwrap();
    assert_eq!(archive.metadata()["format"], "np");
    let mut model = modules::Linear::<1, 2, f32, Cpu>::build(&Cpu::default());
    archive.load(&mut model, STRICT).unwrap();
    assert_eq!(model.weight.array(), [[1.5], [-2.25]]);
    assert_eq!(model.bias.array(), [0.1, 3.0]);
}
