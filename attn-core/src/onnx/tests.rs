//! The parts of an export. `tests/onnx` runs the files.

use super::program::{Call, Expr, Program, Statement, parse};
use super::proto::Attribute;

const PROGRAM: Program<'_> = Program {
    model: "Net",
    text: Err(""),
    sizes: &[7, 9],
    numbers: &[0.25],
    rotaries: &[],
    buffers: &[],
    proved: &[],
};

#[test]
fn an_operand_is_read_as_it_is_written() {
    let text = "y = Op<perm=[1,#1],by=f:~0,name=\"a,b->c\",to=E,axis=-1>(x,%w.*.b,@seq,[],#0,e:~0,d:1e-6,_,true,F())";
    let statements = parse(&PROGRAM, text).unwrap();
    let [Statement::Let("y", Expr::Call(call))] = &*statements else {
        panic!("not one call");
    };
    let attributes = [
        ("perm", Attribute::Ints(vec![1, 9])),
        ("by", Attribute::Float(0.25)),
        ("name", Attribute::Text("a,b->c")),
        ("to", Attribute::Text("E")),
        ("axis", Attribute::Int(-1)),
    ];
    assert_eq!(call.attributes, attributes);
    let inner = Call {
        op: "F",
        attributes: Vec::new(),
        operands: Vec::new(),
    };
    let operands = [
        Expr::Value("x"),
        Expr::Weight("w.*.b"),
        Expr::Length("seq"),
        Expr::Ints(Vec::new()),
        Expr::Int(7),
        Expr::Element(0.25),
        Expr::Double(1e-6),
        Expr::None,
        Expr::Bool(true),
        Expr::Call(inner),
    ];
    assert_eq!(call.operands, operands);
}

#[test]
fn a_malformed_program_is_no_panic() {
    for text in [
        "y = F(x",
        "y = F<a>(x)",
        "y = F(x))",
        "what",
        "input x E seq",
        "y = F(e:~7)",
    ] {
        assert!(parse(&PROGRAM, text).is_none(), "{text}");
    }
}
