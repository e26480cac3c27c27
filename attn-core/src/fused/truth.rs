//! Three-valued conditions.

use std::ops::{BitAnd, BitOr, Not};

use super::{Affine, Cut};

/// A condition at all pairs of a [`Zone`](super::Zone): true, false, or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds everywhere.
    True,
    /// It holds nowhere.
    False,
    /// It holds at some pairs, and not at others. A cut separates them further.
    Mixed(Option<Cut>),
    /// It may hold at some pairs. A cut decides more on both sides; without a cut it stays unknown.
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

    /// `if self { then } else { otherwise }`
    pub fn select<'z>(self, then: Affine<'z>, otherwise: Affine<'z>) -> Affine<'z> {
        match self {
            Self::True => then,
            Self::False => otherwise,
            open => then.or(otherwise, open.cut()),
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
    fn logic_is_that_of_kleene() {
        for a in ALL {
            assert_eq!((a & True, a & False), (a, False));
            assert_eq!((a | True, a | False), (True, a));
            assert_eq!(!!a, a);
        }
        // Two conditions may hold at the same pairs, at different ones, at some or at none.
        for (a, b) in [(Mixed(None), Mixed(None)), (Mixed(None), Unknown(None))] {
            assert_eq!((a & b, a | b), (Unknown(None), Unknown(None)));
        }
    }

    #[test]
    fn conditions_are_chosen() {
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
