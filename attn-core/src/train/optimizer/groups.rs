//! Groups of parameters with settings of their own.

/// The settings of the parameters whose names match a pattern.
pub(super) struct Group<A> {
    pub(super) pattern: String,
    settings: Box<Change<A>>,
}

/// The settings of a group, from those of the optimizer.
type Change<A> = dyn Fn(&A) -> A + Send + Sync;

impl<A> Group<A> {
    pub(super) fn new(pattern: &str, change: impl Fn(&mut A) + Send + Sync + 'static) -> Self
    where
        A: Clone,
    {
        let settings = move |of_optimizer: &A| {
            let mut settings = of_optimizer.clone();
            change(&mut settings);
            settings
        };
        Self {
            pattern: pattern.to_owned(),
            settings: Box::new(settings),
        }
    }

    pub(super) fn settings(&self, of_optimizer: &A) -> A {
        (self.settings)(of_optimizer)
    }
}

/// Whether a name matches a pattern, in which each `*` stands for any characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let mut texts = pattern.split('*');
    let first = texts.next().unwrap_or_default();
    let Some(rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = texts.next_back() else {
        return rest.is_empty();
    };
    let Some(mut rest) = rest.strip_suffix(last) else {
        return false;
    };
    // The first place of each text leaves the most for the others.
    texts.all(|text| match rest.find(text) {
        Some(at) => {
            rest = &rest[at + text.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("blocks.0.norm.weight", "blocks.0.norm.weight", true),
            ("blocks.0.norm", "blocks.0.norm.weight", false),
            ("blocks.*", "blocks.0.norm.weight", true),
            ("blocks.*", "blocks", false),
            ("*.bias", "blocks.0.q_proj.bias", true),
            ("*.bias", "bias", false),
            ("*bias", "bias", true),
            (
                "blocks.*.attention.*",
                "blocks.11.attention.q_proj.weight",
                true,
            ),
            (
                "blocks.*.attention.*",
                "blocks.11.feed_forward.weight",
                false,
            ),
            ("*a*a*", "ba", false),
            ("*a*a*", "aba", true),
            ("a*a", "a", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
