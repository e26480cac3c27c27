//! Three-valued conditions.

use std::ops::{BitAnd, BitOr, Not};

use super::Cut;

/// The truth value of a condition for all pairs of a [`Zone`](super::Zone).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds everywhere.
    True,
    /// It holds nowhere.
    False,
    /// It holds for some pairs and not for others. The cut separates simpler zones.
    Mixed(Option<Cut>),
    /// It may hold for some pairs. The cut separates simpler zones; without a cut, no more can be known.
    Unknown(Option<Cut>),
}

impl Truth {
    /// `if self { then } else { otherwise }`
    pub fn choose(self, then: Self, otherwise: Self) -> Self {
        match self {
            Self::True => then,
            Self::False => otherwise,
            _ if matches!((then, otherwise), (Self::True, Self::True)) => then,
            _ => (self & then) | (!self & otherwise),
        }
    }

    /// The cut, if it is neither true nor false.
    pub(super) fn cut(self) -> Option<Cut> {
        match self {
            Self::True | Self::False => None,
            Self::Mixed(cut) | Self::Unknown(cut) => cut,
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

impl Not for Truth {
    type Output = Self;
    fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            open => open,
        }
    }
}

impl BitAnd for Truth {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        match (self, other) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::True, known) | (known, Self::True) => known,
            (a, b) => Self::Unknown(a.cut().or(b.cut())),
        }
    }
}

impl BitOr for Truth {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        !(!self & !other)
    }
}

#[cfg(test)]
mod tests {
    use super::Truth::{self, False, Mixed, True, Unknown};

    const ALL: [Truth; 4] = [True, False, Mixed(None), Unknown(None)];

    #[test]
    fn connectives_follow_kleene_logic() {
        for a in ALL {
            assert_eq!((a & True, a & False), (a, False));
            assert_eq!((a | True, a | False), (True, a));
            assert_eq!(!!a, a);
        }
        // Two conditions may hold for the same pairs, for different ones, for some or for none.
        for (a, b) in [(Mixed(None), Mixed(None)), (Mixed(None), Unknown(None))] {
            assert_eq!((a & b, a | b), (Unknown(None), Unknown(None)));
        }
    }

    #[test]
    fn choices_of_conditions_follow_kleene_logic() {
        for a in ALL {
            for b in ALL {
                assert_eq!((True.choose(a, b), False.choose(a, b)), (a, b));
                let known = match (a, b) {
                    (True, True) | (False, False) => a,
                    (True, False) | (False, True) => Mixed(None),
                    _ => Unknown(None),
                };
                assert_eq!(Mixed(None).choose(a, b), known);
            }
        }
    }
}
