use crate::simd::{Isa, Kernel, Vector, run};

/// Returns the number of lanes that the kernel runs with.
struct Lanes;

impl Kernel for Lanes {
    type Element = f32;
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) -> usize {
        V::LANES
    }
}

#[test]
fn each_instruction_set_has_its_own_lanes() {
    for isa in Isa::available() {
        let want = match isa {
            Isa::Scalar | Isa::Avx2 => 8,
            Isa::Avx512 | Isa::Amx => 16,
            Isa::Neon => 4,
        };
        assert_eq!(isa.run(Lanes), want, "{isa}");
        assert_eq!(isa.force(|| (Isa::current(), run(Lanes))), (isa, want));
    }
}

#[test]
fn names_of_instruction_sets_are_parsed() {
    for isa in Isa::ALL {
        assert_eq!(isa.to_string().parse(), Ok(isa));
    }
    assert!("sse".parse::<Isa>().is_err());
}

#[test]
#[should_panic(expected = "this machine lacks the instruction set")]
fn an_unavailable_instruction_set_panics() {
    let absent = Isa::ALL
        .into_iter()
        .find(|isa| !isa.is_available())
        .expect("no machine has them all");
    absent.run(Lanes);
}
