//! Random maps.

use proptest::prelude::{
    ProptestConfig, Strategy, any, prop, prop_assert, prop_assert_eq, proptest,
};

use super::{Plan, Rule, WeightMap, expected, of_one, rule};

/// Random rules, and the shapes of our tensors.
fn random_rules() -> impl Strategy<Value = (Vec<Rule>, Vec<Vec<usize>>)> {
    let parts = prop::collection::vec(1..4_usize, 1..4);
    let flags = any::<[bool; 3]>();
    let shape = prop::collection::vec(1..4_usize, 0..3);
    let heads = prop::option::of((1..3_usize, any::<bool>()));
    (parts, flags, shape, heads, 0..4_usize).prop_map(
        |(parts, [transposed, backwards, columns], rest, heads, squeezed)| {
            let columns = columns && !rest.is_empty();
            let mut rules = Vec::new();
            let mut shapes = Vec::new();
            let mut end = 0;
            for (index, len) in parts.into_iter().enumerate() {
                let mut rule = Rule::new(format!("part.{index}"), "theirs");
                let mut shape = rest.clone();
                shape.insert(usize::from(columns), len);
                if let Some((heads, interleaved)) = heads {
                    shape[0] *= 2 * heads;
                    rule = if interleaved {
                        rule.interleaved(heads)
                    } else {
                        rule.halves(heads)
                    };
                }
                if transposed {
                    rule = rule.transposed();
                }
                if squeezed <= shape.len() {
                    rule = rule.squeezed(squeezed);
                }
                let len = shape[usize::from(columns)];
                let range = end..end + len;
                end += len;
                rules.push(if columns {
                    rule.columns(range)
                } else {
                    rule.rows(range)
                });
                shapes.push(shape);
            }
            if backwards {
                rules.reverse();
            }
            (rules, shapes)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// An export can be imported again. It writes every number of their tensors exactly once.
    #[test]
    fn import_undoes_export((rules, shapes) in random_rules()) {
        let names: Vec<String> = (0..shapes.len()).map(|index| format!("part.{index}")).collect();
        let model: Vec<_> = names.iter().zip(&shapes).map(|(name, shape)| expected(name, shape)).collect();
        let plan = Plan::new(&WeightMap::new(rules), &model).expect("the map fits");
        let theirs = &plan.theirs[0].described;
        let count: usize = theirs.shape.iter().product();
        let mut file = vec![0; 4 * count];
        let mut written = 0_u32;
        let mut ours = Vec::new();
        for (name, shape) in names.iter().zip(&shapes) {
            let numbers = written..written + shape.iter().product::<usize>() as u32;
            written = numbers.end;
            let bytes: Vec<u8> = numbers.flat_map(|number| (number + 1).to_le_bytes()).collect();
            plan.ours[name][0].view.as_ref().expect("it is a part").scatter(&bytes, &mut file, 4);
            ours.push(bytes);
        }
        prop_assert_eq!(written as usize, count);
        let mut sorted: Vec<u32> = file.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four"))).collect();
        sorted.sort();
        prop_assert_eq!(sorted, (1..=written).collect::<Vec<_>>());
        for (name, bytes) in names.iter().zip(ours) {
            let found = plan.ours[name][0].view.as_ref().expect("it is a part").gather(&file, 4);
            prop_assert_eq!(found, bytes);
        }
    }

    /// One reordering of the rows of heads is the inverse of the other.
    #[test]
    fn halves_undo_interleaving(heads in 1..5_usize, half in 1..6_usize) {
        let rows = heads * 2 * half;
        let (_, there) = of_one(rule().interleaved(heads), &[rows]);
        let (_, back) = of_one(rule().halves(heads), &[rows]);
        let both: Vec<u8> = back.iter().map(|&i| there[usize::from(i)]).collect();
        prop_assert_eq!(both, (0..rows as u8).collect::<Vec<_>>());
    }

    /// Any map gives a plan or an error.
    #[test]
    fn no_map_is_a_panic(
        names in prop::collection::vec(("[ab.{}*1]{0,6}", "[ab.{}*1]{0,6}"), 0..4),
        shapes in prop::collection::vec(prop::collection::vec(0..3_usize, 0..3), 3),
        numbers in any::<[usize; 3]>(),
        flags in any::<[bool; 4]>(),
    ) {
        let rules = names.iter().map(|(ours, theirs)| {
            let mut rule = Rule::new(ours, theirs);
            if flags[0] { rule = rule.interleaved(numbers[0]); }
            if flags[1] { rule = rule.rows(numbers[1]..numbers[2]); }
            if flags[2] { rule = rule.squeezed(numbers[2] % 4).transposed(); }
            if flags[3] { rule = rule.side_by_side(); }
            rule
        });
        let map = WeightMap::new(rules.collect::<Vec<_>>()).tied("a{}", "b{}").under("a", "b");
        let model: Vec<_> = ["a1", "ab", "a.b.1"].iter().zip(&shapes).map(|(name, shape)| expected(name, shape)).collect();
        if let Err(problem) = Plan::new(&map, &model) {
            prop_assert!(!problem.to_string().is_empty());
        }
    }
}
