//! Writes a declaration, line by line, and knows the axes of its values.

/// The size of each named axis.
pub(super) const ROWS: usize = 3;
pub(super) const D: usize = 4;

/// Random numbers, the same for a seed in every version: splitmix64.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Axis {
    Batch,
    Seq,
    Rows,
    D,
    /// A number, which is none of the named sizes.
    Size(usize),
}

impl Axis {
    pub(super) fn text(self) -> String {
        match self {
            Axis::Batch => "batch".to_owned(),
            Axis::Seq => "seq".to_owned(),
            Axis::Rows => "rows".to_owned(),
            Axis::D => "d".to_owned(),
            Axis::Size(size) => size.to_string(),
        }
    }

    /// The size of an axis that is a constant.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Axis::Batch | Axis::Seq => None,
            Axis::Rows => Some(ROWS),
            Axis::D => Some(D),
            Axis::Size(size) => Some(size),
        }
    }

    /// Whether it is one of the names: an axis that is a number is that of its size.
    pub(super) fn is_named(self) -> bool {
        !matches!(self, Axis::Size(_))
    }

    fn number(self) -> String {
        self.size().map_or(self.text(), |size| size.to_string())
    }
}

/// The layers whose projections get adapters.
const ADAPTED: [&str; 3] = ["linear", "attention", "feed_forward"];

pub(super) type Axes = Vec<Axis>;

/// `[batch, seq]`
pub(super) fn list(axes: &[Axis]) -> String {
    let texts: Vec<_> = axes.iter().map(|axis| axis.text()).collect();
    format!("[{}]", texts.join(", "))
}

/// The constant size of the last axis.
pub(super) fn width(axes: &[Axis]) -> Option<usize> {
    axes.last()?.size()
}

pub(super) fn is_subset(part: &[Axis], of: &[Axis]) -> bool {
    part.iter().all(|axis| of.contains(axis))
}

/// Whether there is a result with these axes: that of a session has a vector for each token.
fn may_be_returned(is_session: bool, axes: &[Axis]) -> bool {
    axes.len() == 3 && (!is_session || axes[..2] == [Axis::Batch, Axis::Seq])
}

struct Value {
    name: String,
    axes: Axes,
    is_read: bool,
    /// Whether a later value has its name.
    is_hidden: bool,
}

pub(super) struct Writer {
    pub(super) numbers: Numbers,
    /// Whether every value has a vector for each token, so that the model has a session.
    pub(super) is_session: bool,
    /// Whether its linear layers have adapters.
    has_adapters: bool,
    inputs: Vec<[String; 2]>,
    lines: Vec<String>,
    values: Vec<Value>,
    names: usize,
}

impl Writer {
    pub(super) fn new(seed: u64, [is_session, has_adapters]: [bool; 2]) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        numbers.below(1);
        Writer {
            numbers,
            is_session,
            has_adapters,
            inputs: Vec::new(),
            lines: Vec::new(),
            values: Vec::new(),
            names: 0,
        }
    }

    pub(super) fn line(&mut self, line: String) {
        self.lines.push(line);
    }

    pub(super) fn name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    pub(super) fn declare(&mut self, name: String, axes: Axes) {
        for value in &mut self.values {
            value.is_hidden |= value.name == name;
        }
        self.values.push(Value {
            name,
            axes,
            is_read: false,
            is_hidden: false,
        });
    }

    /// `let v1 = expr;`
    pub(super) fn define(&mut self, expr: &str, axes: Axes) -> Option<()> {
        let name = self.any_name();
        self.line(format!("let {name} = {expr};"));
        self.declare(name, axes);
        Some(())
    }

    /// A new name; the name of another value that has been read; or one that the macro could make of such a name.
    fn any_name(&mut self) -> String {
        let read = self.values.iter().filter(|value| value.is_read);
        let read: Vec<String> = read.map(|value| value.name.clone()).collect();
        if read.is_empty() || self.numbers.percent(70) {
            return self.name();
        }
        let name = self.numbers.pick(&read).clone();
        let numbered = format!("{name}_2");
        let is_taken = self.values.iter().any(|value| value.name == numbered);
        match is_taken || self.numbers.percent(50) {
            true if self.is_free(&name) => name,
            false => numbered,
            true => self.name(),
        }
    }

    /// Whether nobody needs the value with this name any more. Some value that may be returned is always there.
    fn is_free(&self, name: &str) -> bool {
        let mut of_name = self.values.iter().filter(|value| value.name == name);
        let mut visible = self.values.iter().filter(|value| !value.is_hidden);
        of_name.all(|value| value.is_read)
            && visible
                .any(|value| value.name != name && may_be_returned(self.is_session, &value.axes))
    }

    /// An input, which is declared when it is first asked for: `kind` is that of the tests, `ty` what stands before its axes.
    pub(super) fn input(&mut self, name: &str, [kind, ty]: [&str; 2], axes: &[Axis]) -> String {
        let declared = format!("{name}: {ty}{}", list(axes));
        if !self.inputs.iter().any(|[input, _]| *input == declared) {
            let sizes: Vec<_> = axes.iter().map(|axis| axis.number()).collect();
            let case = format!("{name}: {kind}[{}]", sizes.join(", "));
            self.inputs.push([declared, case]);
        }
        name.to_owned()
    }

    /// Some value with axes for which this is true, rather one that nobody has read.
    pub(super) fn find(&mut self, suits: impl Fn(&[Axis]) -> bool) -> Option<usize> {
        let all = 0..self.values.len();
        let suiting = all.filter(|at| !self.values[*at].is_hidden);
        let suiting: Vec<usize> = suiting.filter(|at| suits(&self.values[*at].axes)).collect();
        let unread = suiting.iter().copied();
        let unread: Vec<usize> = unread.filter(|at| !self.values[*at].is_read).collect();
        let among = match unread.is_empty() || self.numbers.percent(30) {
            true => suiting,
            false => unread,
        };
        (!among.is_empty()).then(|| *self.numbers.pick(&among))
    }

    pub(super) fn axes(&self, at: usize) -> Axes {
        self.values[at].axes.clone()
    }

    pub(super) fn read(&mut self, at: usize) -> String {
        self.values[at].is_read = true;
        self.values[at].name.clone()
    }

    /// The sum of all values that nobody has read, with the axes of one of them: means stand for the others' axes.
    fn sum(&mut self) -> (String, Axes) {
        let unread = (0..self.values.len()).filter(|at| !self.values[*at].is_read);
        let unread: Vec<usize> = unread.collect();
        let suits = |at: &&usize| match self.values[**at].axes.as_slice() {
            axes if self.is_session => may_be_returned(true, axes),
            axes => !axes.is_empty(),
        };
        let largest = unread.iter().rev().filter(suits);
        let largest = largest.max_by_key(|at| self.values[**at].axes.len());
        let is_session = self.is_session;
        let largest = largest
            .copied()
            .or_else(|| self.find(|axes| may_be_returned(is_session, axes)));
        let largest = largest.expect("the first value has three axes");
        let axes = self.axes(largest);
        let mut sum = self.read(largest);
        for other in unread.into_iter().filter(|other| *other != largest) {
            let of = self.axes(other);
            let surplus: Axes = of.into_iter().filter(|axis| !axes.contains(axis)).collect();
            let name = self.read(other);
            sum += &match surplus.is_empty() {
                true => format!(" + {name}"),
                false => format!(" + mean::<{}>({name})", list(&surplus)),
            };
        }
        (sum, axes)
    }

    /// The case: the model, and its inputs.
    pub(super) fn finish(mut self, name: &str) -> String {
        let (mut result, mut axes) = self.sum();
        let mut kind = "";
        if self.is_session {
            result = format!("linear::<5, name = head>({result})");
            axes = vec![Axis::Batch, Axis::Seq, Axis::Size(5)];
            kind = " in a session";
        }
        let inputs: Vec<&str> = self
            .inputs
            .iter()
            .map(|[input, _]| input.as_str())
            .collect();
        let cases: Vec<&str> = self.inputs.iter().map(|[_, case]| case.as_str()).collect();
        let lines: String = self
            .lines
            .iter()
            .map(|line| format!("            {line}\n"))
            .collect();
        let forward = format!(
            "fn forward({}) -> {} {{\n{lines}            {result}\n        }}",
            inputs.join(", "),
            list(&axes),
        );
        // Those that are used.
        let sizes = [("rows", ROWS), ("d", D)].into_iter();
        let sizes = sizes.filter(|(size, _)| has_word(&forward, size));
        let mut header: Vec<_> = sizes
            .map(|(name, size)| format!("{name} = {size}"))
            .collect();
        if self.has_adapters && ADAPTED.iter().any(|layer| has_word(&forward, layer)) {
            header.push("lora(rank = 1, alpha = 2, on = [\"*\"])".to_owned());
        }
        format!(
            "    {name} {{\n        struct M<{}>;\n        {forward}\n    }} ({}){kind};\n",
            header.join(", "),
            cases.join(", "),
        )
    }
}

/// Whether a word stands somewhere in a text.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut places = text.match_indices(word);
    places.any(|(place, _)| {
        !text[..place].ends_with(is_letter) && !text[place + word.len()..].starts_with(is_letter)
    })
}
