//! A layer has the visibility of its declaration.

mod model {
    use attn::attention;

    attention! {
        struct Private<heads = 2, d_model = 16>;
        pub(self) struct Own<heads = 2, d_model = 16>;
        pub(in crate::model) struct Restricted<heads = 2, d_model = 16>;
        pub(crate) struct Public<heads = 2, d_model = 16>;
    }
}

use model::Own;
use model::Private;
use model::Public;
use model::Restricted;

fn main() {
    let _ = (
        Own::PARAMS,
        Private::PARAMS,
        Public::PARAMS,
        Restricted::PARAMS,
    );
}
