//! Names of types, made of those of values and axes.

/// `d_model` as `DModel`.
pub(crate) fn camel_case(name: &str) -> String {
    name.split('_').map(capital).collect()
}

/// `d_model` as `D_model`.
pub(crate) fn capital(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
