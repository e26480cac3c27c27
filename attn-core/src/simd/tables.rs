//! Constants of the elementary functions.
//!
//! The polynomials are minimax: Remez exchange in 50 digits (`fit/remez.py`), for the weight and interval beside each of them,
//! then rounded to the type. The lowest power comes first.

/// The constants of [`math`](super::math) for an element type.
pub trait Tables: Sized + 'static {
    /// For smaller arguments the result of `exp` would be subnormal.
    const EXP_MIN: Self;
    /// For larger arguments the result of `exp` is infinite.
    const EXP_MAX: Self;
    /// For smaller arguments the result of `exp` is less than 2^-80 and 2^-900: negligible beside 1, and so far from the
    /// subnormal numbers that its products with others are normal.
    const EXP_MIN_WEIGHT: Self;
    /// The smallest number whose products with most others are not subnormal.
    const NEGLIGIBLE: Self;
    /// 1 / ln 2
    const LOG2_E: Self;
    /// The leading bits of ln 2, few enough that its product with an exponent is exact.
    const LN_2_HIGH: Self;
    /// The rest of ln 2.
    const LN_2_LOW: Self;
    /// `exp(r) = 1 + r + r² P(r)` for |r| ≤ ½ ln 2; relative error 2^-28.3 and 2^-57.9.
    const EXP: &'static [Self];
    /// From this number on `tanh` rounds to 1.
    const TANH_MAX: Self;
    /// `ln((1 + s) / (1 - s)) = 2 s + s³ P(s²)` for |s| ≤ 3 - 2 √2; relative error 2^-30.2 and 2^-59.5.
    const LN: &'static [Self];
    /// A power of two that makes every subnormal number normal.
    const LN_LIFT: Self;
    /// The exponent of [`LN_LIFT`](Self::LN_LIFT).
    const LN_LIFT_EXPONENT: Self;
    /// `erf(x) = x + x P(x²)` for |x| ≤ 1; relative error 2^-29.6 and 2^-62.7.
    const ERF_SMALL: &'static [Self];
    /// `erf(x) = 1 - exp(P(x - 1))` from 1 to [`ERF_MAX`](Self::ERF_MAX); absolute error 2^-29.9 and 2^-53.9.
    const ERF_LARGE: &'static [Self];
    /// From this number on `erf` rounds to 1.
    const ERF_MAX: Self;
}

impl Tables for f32 {
    const EXP_MIN: Self = -87.336_54;
    const EXP_MAX: Self = 89.0;
    const EXP_MIN_WEIGHT: Self = -55.451_77;
    // 2^-100
    const NEGLIGIBLE: Self = f32::from_bits((127 - 100) << 23);
    const LOG2_E: Self = std::f32::consts::LOG2_E;
    const LN_2_HIGH: Self = 0.693_359_4;
    const LN_2_LOW: Self = -2.121_944_4e-4;
    const EXP: &'static [Self] = &[
        0.49999994,
        0.16666521,
        0.041668385,
        0.008368746,
        0.001381478,
    ];
    const TANH_MAX: Self = 10.0;
    const LN: &'static [Self] = &[0.66666776, 0.39977542, 0.29871774];
    const LN_LIFT: Self = 16_777_216.0;
    const LN_LIFT_EXPONENT: Self = 24.0;
    const ERF_SMALL: &'static [Self] = &[
        0.12837917,
        -0.37612626,
        0.112835854,
        -0.026853813,
        0.0051883273,
        -0.00080101885,
        7.853835e-05,
    ];
    const ERF_LARGE: &'static [Self] = &[
        -1.8496056,
        -2.6389668,
        -0.8431183,
        -0.04150069,
        0.009890893,
        -0.0018261628,
        0.0001855736,
    ];
    const ERF_MAX: Self = 4.0;
}

impl Tables for f64 {
    const EXP_MIN: Self = -708.396_418_532_264_1;
    const EXP_MAX: Self = 710.0;
    const EXP_MIN_WEIGHT: Self = -623.832_462_503_950_8;
    // 2^-950
    const NEGLIGIBLE: Self = f64::from_bits((1023 - 950) << 52);
    const LOG2_E: Self = std::f64::consts::LOG2_E;
    const LN_2_HIGH: Self = 0.693_147_180_369_123_8;
    const LN_2_LOW: Self = 1.908_214_929_270_587_7e-10;
    const EXP: &'static [Self] = &[
        0.5000000000000011,
        0.16666666666666413,
        0.041666666666529704,
        0.008333333333494558,
        0.0013888888943765325,
        0.00019841269506696343,
        2.4801492943954277e-05,
        2.7557585986093313e-06,
        2.763030833612073e-07,
        2.500027312864502e-08,
    ];
    const TANH_MAX: Self = 20.0;
    const LN: &'static [Self] = &[
        0.6666666666666734,
        0.3999999999941429,
        0.28571428742497185,
        0.2222219856036249,
        0.18183565056575893,
        0.1531403049771596,
        0.14796162189243067,
    ];
    const LN_LIFT: Self = 18_014_398_509_481_984.0;
    const LN_LIFT_EXPONENT: Self = 54.0;
    const ERF_SMALL: &'static [Self] = &[
        0.1283791670955126,
        -0.3761263890318375,
        0.11283791670954857,
        -0.026866170645072903,
        0.005223977624780955,
        -0.0008548326978747125,
        0.00012055331037075004,
        -1.4925593511015418e-05,
        1.6460972881793106e-06,
        -1.635002589423797e-07,
        1.4657884256679133e-08,
        -1.1365682624527597e-09,
        5.945289257375883e-11,
    ];
    const ERF_LARGE: &'static [Self] = &[
        -1.8496055099332482,
        -2.638967514234786,
        -0.843107256358873,
        -0.04156109803611349,
        0.010033825294124237,
        -0.001977901915336692,
        0.00023731912366767972,
        2.6289462880303428e-05,
        -2.7186973102954332e-05,
        9.656768152710228e-06,
        -2.119500013536211e-06,
        1.9747670164875936e-07,
        6.091059697639184e-08,
        -3.409716158237156e-08,
        8.597354840441035e-09,
        -1.3135865907464826e-09,
        1.167586063281937e-10,
        -4.65460008436023e-12,
    ];
    const ERF_MAX: Self = 6.0;
}
