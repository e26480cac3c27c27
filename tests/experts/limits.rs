//! Ids that are no group, groups without rows, rows that are dropped, and empty inputs.

use super::*;

model! {
    struct Groups<d = 2, groups = 3>;
    fn forward(x: [seq, d], group: ids[seq]) -> [seq, d] { grouped_linear::<d, groups>(x, group) }
}

fn of(numbers: &[usize]) -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(numbers.to_vec(), (numbers.len(),))
}

fn x(seq: usize) -> Tensor<(usize, Const<2>), f64, Cpu> {
    tensor("x", (seq, Const))
}

#[test]
fn an_id_that_is_no_group_is_an_error_that_names_both() {
    let model = Cpu::default().build_module::<Groups, f64>();
    let message = "grouped_linear: the id at [1] is 3, but there are 3: 0 to 2";
    let error = model.try_forward((x(3), of(&[2, 3, 0]))).unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = model
        .composed()
        .try_forward((x(3), of(&[2, 3, 0])))
        .unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = model.try_forward((x(3), of(&[2, 0]))).unwrap_err();
    let message = "Groups: axis `seq` is 3 in `x`, but 2 in `group`";
    assert_eq!(error.to_string(), message);
}

/// The largest id that may be computed is known before anything is.
#[test]
fn computed_ids_beyond_the_groups_are_an_error() {
    model! {
        struct Places<d = 2>;
        fn forward(x: [seq, d]) -> [seq, d] { grouped_linear::<d, groups = 3>(x, arange::<seq>()) }
    }
    let model = Cpu::default().build_module::<Places, f64>();
    model.forward(x(3));
    let message = "grouped_linear: the largest id is 3, but there are 3: 0 to 2";
    assert_eq!(model.try_forward(x(4)).unwrap_err().to_string(), message);
    let error = model.composed().try_forward(x(4)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn groups_without_rows_have_gradients_of_zero() {
    let mut model = Cpu::default().build_module::<Groups, f64>();
    for ids in [&[1, 1, 1][..], &[2, 0, 2], &[]] {
        let input = (x(ids.len()).leaky_traced(), of(ids));
        let y = model.forward_mut(input);
        assert_eq!(y.shape().concrete(), [ids.len(), 2]);
        if ids.is_empty() {
            continue;
        }
        let gradients = y.sum().backward();
        let weight = gradients.get(&model.grouped_linear.weight).as_vec();
        let bias = gradients.get(&model.grouped_linear.bias).as_vec();
        for group in 0..3 {
            let count = ids.iter().filter(|id| **id == group).count();
            assert_eq!(bias[group * 2..][..2], [count as f64; 2]);
            let is_zero = weight[group * 4..][..4].iter().all(|d| *d == 0.0);
            assert_eq!(is_zero, count == 0);
        }
    }
}

/// NaN of one token reaches the gradients of its group, and no other.
#[test]
fn what_is_not_finite_stays_in_its_group() {
    let mut model = Cpu::default().build_module::<Groups, f64>();
    let mut x = x(3);
    x[[1, 0]] = f64::NAN;
    let y = model.forward_mut((x.leaky_traced(), of(&[0, 1, 0])));
    let finite: Vec<bool> = y.as_vec().iter().map(|y| y.is_finite()).collect();
    assert_eq!(finite, [true, true, false, false, true, true]);
    let gradients = y.sum().backward();
    let weight = gradients.get(&model.grouped_linear.weight).as_vec();
    let finite: Vec<bool> = weight
        .chunks(4)
        .map(|w| w.iter().all(|d| d.is_finite()))
        .collect();
    assert_eq!(finite, [true, false, true]);
}

/// The rows of a group, in their order, up to its capacity. The others are 0, whatever the bias is, and so are their gradients.
#[test]
fn rows_beyond_the_capacity_are_zero() {
    model! {
        struct Limited<d = 2, groups = 3>;
        fn forward(x: [seq, d], group: ids[seq]) -> [seq, d] {
            grouped_linear::<d, groups, capacity_factor = 1.0>(x, group)
        }
    }
    let mut limited = Cpu::default().build_module::<Limited, f64>();
    let mut whole = Cpu::default().build_module::<Groups, f64>();
    scatter(&mut limited);
    scatter(&mut whole);
    // ceil(7 / 3) = 3 of each group.
    let ids = [1, 1, 0, 1, 1, 2, 1];
    let all = whole.forward((x(7), of(&ids))).as_vec();
    let y = limited.forward_mut((x(7).leaky_traced(), of(&ids)));
    let composed = limited.composed().forward((x(7), of(&ids))).as_vec();
    for row in 0..7 {
        let own = row * 2..row * 2 + 2;
        let expected = if [4, 6].contains(&row) {
            &[0.0; 2]
        } else {
            &all[own.clone()]
        };
        assert_eq!(y.as_vec()[own.clone()], *expected, "row {row}");
        assert!(
            composed[own]
                .iter()
                .zip(expected)
                .all(|(a, b)| (a - b).abs() < 1e-13)
        );
    }
    let gradients = y.sum().backward();
    let bias = gradients.get(&limited.grouped_linear.bias).as_vec();
    assert_eq!(bias, [1.0, 1.0, 3.0, 3.0, 1.0, 1.0]);
}

/// `1.1 * 100` is `110.00000000000001` in `f64`.
#[test]
fn the_capacity_is_that_of_the_decimal_factor() {
    let weight: Tensor<Rank3<2, 1, 1>, f64, Cpu> = Cpu::default().ones();
    let kept = |factor: f64, rows: usize| {
        let maps = attn::ops::GroupedAffine {
            weight: &weight,
            bias: None,
        };
        let x: Tensor<(usize, Const<1>), f64, Cpu> = Cpu::default().ones_like(&(rows, Const));
        let ids = of(&vec![0; rows]);
        let y = attn::ops::grouped_linear(x, &ids, maps, Some(factor), (rows, Const::<1>));
        y.as_vec().iter().filter(|y| **y != 0.0).count()
    };
    assert_eq!(kept(1.1, 200), 110);
    assert_eq!(kept(0.7, 200), 70);
    assert_eq!(kept(1.1, 202), 112);
    assert_eq!(kept(1.25, 6), 4);
}

#[test]
fn a_capacity_that_is_no_positive_number_is_an_error() {
    let weight: Tensor<Rank3<2, 1, 1>, f64, Cpu> = Cpu::default().ones();
    let maps = attn::ops::GroupedAffine {
        weight: &weight,
        bias: None,
    };
    let x: Tensor<Rank2<3, 1>, f64, Cpu> = Cpu::default().ones();
    for factor in [f64::NAN, -1.0, 0.0, f64::INFINITY] {
        let to = (Const::<3>, Const::<1>);
        let result = attn::ops::try_grouped_linear(
            x.clone(),
            &of(&[0, 1, 0]),
            maps.clone(),
            Some(factor),
            to,
        );
        assert_eq!(
            result.unwrap_err().to_string(),
            format!(
                "grouped_linear: `capacity_factor` must be positive and finite, found {factor}"
            )
        );
    }
}

/// NaN in the weights of an expert that no row asks for reaches nothing, in both forms.
#[test]
fn an_expert_that_is_not_chosen_is_not_read() {
    model! {
        struct Experts<d = 3, experts = 4>;
        fn forward(x: [seq, d]) -> [seq, d] {
            let (best, ids) = top_k::<k = 2>(linear::<experts, name = gate>(x));
            let h = relu(grouped_linear::<5, experts, name = up>(x, ids));
            sum::<2>(softmax(best) * grouped_linear::<d, experts, name = down>(h, ids))
        }
    }
    let mut model = Cpu::default().build_module::<Experts, f64>();
    scatter(&mut model);
    // The third expert is never among the best two.
    model.gate.bias[[2]] = -1e3;
    let x: Tensor<(usize, Const<3>), f64, Cpu> = tensor("x", (7, Const));
    let clean = backpropagate(model.forward_mut(x.clone().leaky_traced()));
    let clean = clean.input("x", &x).parameters(&model);
    poison(&mut model.up.weight, 2);
    poison(&mut model.down.weight, 2);
    model.up.bias[[2, 0]] = f64::NAN;
    model.down.bias[[2, 0]] = f64::NAN;
    let found = backpropagate(model.forward_mut(x.clone().leaky_traced()));
    let found = found.input("x", &x).parameters(&model);
    assert_eq!(clean, found);
    let composed = backpropagate(model.composed().forward(x.leaky_trace()));
    let composed = composed.input("x", &x).parameters(&model);
    assert_same("composed", &found, &composed, tolerance::<f64>());
}

/// Sets a matrix to NaN.
fn poison<const G: usize, const O: usize, const I: usize>(
    weight: &mut Tensor<Rank3<G, O, I>, f64, Cpu>,
    group: usize,
) {
    for place in 0..O * I {
        weight[[group, place / I, place % I]] = f64::NAN;
    }
}
