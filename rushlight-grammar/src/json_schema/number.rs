//! Number texts whose value lies in a range or is a multiple, as regular languages.
//!
//! Bounded numbers are written without an exponent, so that a digit-by-digit comparison with the bound is exact. Every
//! language here is a set of texts `-?digits(.digits)?` without leading zeros and without a negative zero; each comparison
//! holds exactly the texts whose value satisfies it, which makes complements within the base set sound.

use serde_json::Value;

use super::rx::Rx;

/// How many digits a number may have, so that a number always closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    /// Integer digits; the default is 19, as in a 64-bit integer.
    pub integer: u32,
    /// Digits after the point; the default is 17, which any `f64` fits in.
    pub fraction: u32,
    /// Digits of the exponent; the default is 3.
    pub exponent: u32,
}

impl Default for Digits {
    fn default() -> Self {
        Self {
            integer: 19,
            fraction: 17,
            exponent: 3,
        }
    }
}

/// A decimal number: sign, integer digits without leading zeros, fraction digits without trailing zeros.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Decimal {
    negative: bool,
    integer: String,
    fraction: String,
}

impl Decimal {
    /// Reads a JSON number; `None` where it would need more than 400 digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if exponent.unsigned_abs() > 400
            || !integer
                .bytes()
                .chain(fraction.bytes())
                .all(|b| b.is_ascii_digit())
        {
            return None;
        }
        let digits = format!("{integer}{fraction}");
        let point = i64::try_from(integer.len()).ok()? + i64::from(exponent);
        let (integer, fraction) = if point <= 0 {
            let zeros = usize::try_from(-point).ok()?;
            (String::new(), format!("{}{digits}", "0".repeat(zeros)))
        } else {
            let point = usize::try_from(point).ok()?;
            if point >= digits.len() {
                (
                    format!("{digits}{}", "0".repeat(point - digits.len())),
                    String::new(),
                )
            } else {
                (
                    digits.get(..point)?.to_owned(),
                    digits.get(point..)?.to_owned(),
                )
            }
        };
        let integer = integer.trim_start_matches('0');
        let integer = if integer.is_empty() { "0" } else { integer };
        let fraction = fraction.trim_end_matches('0');
        Some(Self {
            negative: negative && !(integer == "0" && fraction.is_empty()),
            integer: integer.to_owned(),
            fraction: fraction.to_owned(),
        })
    }

    /// The number as `coefficient * 10^-exponent`, where both are small: the automaton of its multiples has a state for
    /// each remainder, and its arithmetic is of 32 bits.
    fn scaled(&self) -> Option<(u32, u32)> {
        let coefficient: u32 = format!("{}{}", self.integer, self.fraction).parse().ok()?;
        let exponent = u32::try_from(self.fraction.len()).ok()?;
        (coefficient <= 10_000 && exponent <= 8).then_some((coefficient, exponent))
    }

    /// How many digits are written, zeros at either end aside.
    pub(super) fn digits(&self) -> usize {
        let integer = self.integer.trim_start_matches('0').len();
        integer + self.fraction.len()
    }

    /// Whether the value is a whole number.
    pub(super) fn is_integer(&self) -> bool {
        self.fraction.is_empty()
    }

    /// The shortest text without an exponent.
    pub(super) fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let point = if self.fraction.is_empty() { "" } else { "." };
        format!("{sign}{}{point}{}", self.integer, self.fraction)
    }
}

/// The languages of number texts under one set of digit caps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    digits: Digits,
}

/// A comparison with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Compare {
    Less,
    AtMost,
    AtLeast,
    More,
}

impl Compare {
    pub(super) fn negated(self) -> Self {
        match self {
            Compare::Less => Compare::AtLeast,
            Compare::AtMost => Compare::More,
            Compare::AtLeast => Compare::Less,
            Compare::More => Compare::AtMost,
        }
    }
}

impl Numbers {
    pub(super) fn new(digits: Digits) -> Self {
        Self { digits }
    }

    /// Why numbers about `bound` are left out, where it has more digits than a number may have, or nearly.
    pub(super) fn shortened(self, bound: &Decimal) -> Option<String> {
        let Digits {
            integer, fraction, ..
        } = self.digits;
        self.is_long(bound).then(|| {
            format!(
                "numbers have at most {integer} digits before the point and {fraction} after it"
            )
        })
    }

    /// Whether there are numbers next to `number` that are not written: multiples too, beyond a bound of as many digits.
    fn is_long(self, number: &Decimal) -> bool {
        let cap = self.digits.integer as usize;
        let len = number.integer.len();
        // A step is at most 10,000: beyond a number of 18 digits that do not begin with 99, multiples are still written.
        let is_last = cap < 18 || number.integer.starts_with("99");
        len > cap
            || (len == cap && is_last)
            || number.fraction.len() >= self.digits.fraction as usize
    }

    /// Whether a number of `document` is long.
    pub(super) fn has_long(self, document: &Value) -> bool {
        let mut open = vec![document];
        while let Some(value) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(members) => open.extend(members.values()),
                Value::Number(number) => {
                    let read = Decimal::parse(&number.to_string());
                    if read.is_none_or(|number| self.is_long(&number)) {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }

    fn natural(self) -> String {
        format!(
            "(?:0|[1-9][0-9]{{0,{}}})",
            self.digits.integer.saturating_sub(1)
        )
    }

    fn fraction(self) -> String {
        format!("(?:\\.[0-9]{{1,{}}})?", self.digits.fraction.max(1))
    }

    /// Any number, with or without an exponent.
    pub(super) fn any(self) -> Rx {
        let exponent = match self.digits.exponent {
            0 => String::new(),
            n @ 1..=2 => format!("(?:[eE][+-]?[0-9]{{1,{n}}})?"),
            // Up to 10^199, so that no number passes what an f64 holds; a small one may round to 0.
            n => format!("(?:[eE](?:-[0-9]{{1,{n}}}|\\+?(?:[0-9]{{1,2}}|[01][0-9]{{2}})))?"),
        };
        Rx::Plain(format!("-?{}{}{exponent}", self.natural(), self.fraction()))
    }

    /// Any number without an exponent and without a negative zero.
    pub(super) fn decimal(self) -> Rx {
        Rx::alt([
            Rx::Plain(format!("{}{}", self.natural(), self.fraction())),
            Rx::and([
                Rx::Plain(format!("-{}{}", self.natural(), self.fraction())),
                Rx::Plain(r"-0(?:\.0+)?".to_owned()).complement(),
            ]),
        ])
    }

    /// Whole numbers, written without a point.
    pub(super) fn integer(self) -> Rx {
        Rx::Plain(format!(
            "0|-?[1-9][0-9]{{0,{}}}",
            self.digits.integer.saturating_sub(1)
        ))
    }

    /// Numbers that are not whole.
    pub(super) fn fractional(self) -> Rx {
        Rx::Plain(format!(
            "-?{}\\.[0-9]{{0,{}}}[1-9]0{{0,{}}}",
            self.natural(),
            self.digits.fraction.saturating_sub(1),
            self.digits.fraction.saturating_sub(1)
        ))
    }

    /// Numbers that compare with `bound` as `compare` says.
    pub(super) fn compared(self, compare: Compare, bound: &Decimal) -> Rx {
        let fraction = self.fraction();
        let natural = self.natural();
        let nonnegative = Rx::Plain(format!("{natural}{fraction}"));
        let negative = Rx::and([
            Rx::Plain(format!("-{natural}{fraction}")),
            Rx::Plain(r"-0(?:\.0+)?".to_owned()).complement(),
        ]);
        let minus = |magnitude: Rx| {
            Rx::and([
                Rx::cat([Rx::Lit("-".to_owned()), magnitude]),
                Rx::Plain(r"-0(?:\.0+)?".to_owned()).complement(),
            ])
        };
        if bound.text() == "0" && matches!(compare, Compare::AtLeast | Compare::More) {
            return self.signless(compare == Compare::More);
        }
        match (compare, bound.negative) {
            (Compare::AtLeast, false) => self.above(bound, true),
            (Compare::More, false) => self.above(bound, false),
            (Compare::AtMost, false) => Rx::alt([negative, self.below(bound, true)]),
            (Compare::Less, false) => Rx::alt([negative, self.below(bound, false)]),
            (Compare::AtLeast, true) => Rx::alt([nonnegative, minus(self.below(bound, true))]),
            (Compare::More, true) => Rx::alt([nonnegative, minus(self.below(bound, false))]),
            (Compare::AtMost, true) => minus(self.above(bound, true)),
            (Compare::Less, true) => minus(self.above(bound, false)),
        }
    }

    /// Numbers of at least 0, or above it. The sign alone decides, so an exponent does no harm; two digits of it keep every
    /// value above 0 from becoming 0 in an `f64`.
    fn signless(self, above: bool) -> Rx {
        let exponent = match self.digits.exponent.min(2) {
            0 => String::new(),
            n => format!("(?:[eE][+-]?[0-9]{{1,{n}}})?"),
        };
        let (natural, fraction) = (self.natural(), self.fraction());
        let all = Rx::Plain(format!("{natural}{fraction}{exponent}"));
        if above {
            Rx::and([all, Rx::Plain("[0.]*[1-9][0-9.]*(?:[eE].*)?".to_owned())])
        } else {
            all
        }
    }

    /// Texts whose value is exactly `value`.
    pub(super) fn equal(self, value: &Decimal) -> Rx {
        let sign = if value.negative { "-" } else { "" };
        Rx::Plain(format!("{sign}{}", equal_magnitude(value)))
    }

    /// Multiples of `step`, or `None` where the step has too many digits.
    pub(super) fn multiple(self, step: &Decimal) -> Option<Rx> {
        let (coefficient, exponent) = step.scaled()?;
        if coefficient == 0 {
            return None;
        }
        Some(Rx::and([
            self.decimal(),
            Rx::cat([
                Rx::Plain("-?".to_owned()),
                Rx::MultipleOf(coefficient, exponent),
            ]),
        ]))
    }

    /// Numbers that are not multiples of the whole number `step`; `None` where that cannot be stated.
    ///
    /// The engine's multiple-of automaton reads no fraction for a whole step, so only then is its complement known.
    pub(super) fn not_multiple(self, step: &Decimal) -> Option<Rx> {
        if !step.is_integer() {
            return None;
        }
        let multiple = self.multiple(step)?;
        Some(Rx::alt([
            self.fractional(),
            Rx::and([self.integer(), multiple.complement()]),
        ]))
    }

    /// Magnitudes above that of `bound`.
    fn above(self, bound: &Decimal, inclusive: bool) -> Rx {
        let fraction = self.fraction();
        let len = bound.integer.len();
        let mut options = Vec::new();
        let cap = self.digits.integer as usize;
        if len < cap {
            options.push(format!("[1-9][0-9]{{{len},{}}}{fraction}", cap - 1));
        }
        for (i, digit) in bound.integer.bytes().enumerate() {
            if digit < b'9' {
                let prefix = bound.integer.get(..i).unwrap_or_default();
                let low = char::from(digit + 1);
                options.push(format!(
                    "{prefix}[{low}-9][0-9]{{{}}}{fraction}",
                    len - i - 1
                ));
            }
        }
        let whole = &bound.integer;
        if bound.fraction.is_empty() {
            options.push(format!("{whole}\\.[0-9]*[1-9][0-9]*"));
        } else {
            for (i, digit) in bound.fraction.bytes().enumerate() {
                if digit < b'9' {
                    let prefix = bound.fraction.get(..i).unwrap_or_default();
                    options.push(format!(
                        "{whole}\\.{prefix}[{}-9][0-9]*",
                        char::from(digit + 1)
                    ));
                }
            }
            options.push(format!("{whole}\\.{}[0-9]*[1-9][0-9]*", bound.fraction));
        }
        if inclusive {
            options.push(equal_magnitude(bound));
        }
        self.capped(options)
    }

    /// Any of `options`, with no more fraction digits than a number may have.
    fn capped(self, options: Vec<String>) -> Rx {
        let all = Rx::Plain(options.join("|"));
        let open = options
            .iter()
            .any(|option| option.contains('*') || option.contains('+'));
        if open {
            Rx::and([all, Rx::Plain(format!("[0-9]+{}", self.fraction()))])
        } else {
            all
        }
    }

    /// Magnitudes below that of `bound`, zero among them.
    fn below(self, bound: &Decimal, inclusive: bool) -> Rx {
        let fraction = self.fraction();
        let len = bound.integer.len();
        let mut options = Vec::new();
        if len > 1 {
            options.push(format!("(?:0|[1-9][0-9]{{0,{}}}){fraction}", len - 2));
        }
        for (i, digit) in bound.integer.bytes().enumerate() {
            let lowest = if i == 0 && len > 1 { b'1' } else { b'0' };
            if digit > lowest {
                let prefix = bound.integer.get(..i).unwrap_or_default();
                options.push(format!(
                    "{prefix}[{}-{}][0-9]{{{}}}{fraction}",
                    char::from(lowest),
                    char::from(digit - 1),
                    len - i - 1
                ));
            }
        }
        let whole = &bound.integer;
        for (i, digit) in bound.fraction.bytes().enumerate() {
            let prefix = bound.fraction.get(..i).unwrap_or_default();
            // A fraction that stops here is smaller: the bound goes on with a non-zero digit somewhere.
            options.push(if i == 0 {
                whole.clone()
            } else {
                format!("{whole}\\.{prefix}")
            });
            if digit > b'0' {
                options.push(format!(
                    "{whole}\\.{prefix}[0-{}][0-9]*",
                    char::from(digit - 1)
                ));
            }
        }
        if inclusive {
            options.push(equal_magnitude(bound));
        }
        if options.is_empty() {
            return Rx::None;
        }
        self.capped(options)
    }
}

fn equal_magnitude(value: &Decimal) -> String {
    if value.fraction.is_empty() {
        format!("{}(?:\\.0+)?", value.integer)
    } else {
        format!("{}\\.{}0*", value.integer, value.fraction)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    #[test]
    fn decimals_normalise() {
        for (text, want) in [
            ("1e3", "1000"),
            ("1.50", "1.5"),
            ("-0.0", "0"),
            ("12e-3", "0.012"),
            ("0.00012E2", "0.012"),
            ("-3.25e1", "-32.5"),
        ] {
            assert_eq!(decimal(text).text(), want);
        }
        assert!(Decimal::parse("1e999").is_none());
    }

    /// Every comparison of a grid of texts with a grid of bounds agrees with arithmetic.
    #[test]
    fn comparisons_agree_with_arithmetic() {
        let numbers = Numbers::new(Digits::default());
        let bounds = [
            "0", "1", "9", "10", "99", "100", "105", "0.5", "1.25", "9.99", "10.01", "0.05",
        ];
        let mut texts: Vec<String> = Vec::new();
        for whole in [
            "0", "1", "2", "8", "9", "10", "11", "99", "100", "101", "104", "105", "106", "999",
            "1000",
        ] {
            for fraction in [
                "", ".0", ".00", ".01", ".04", ".05", ".051", ".1", ".2", ".25", ".250", ".26",
                ".5", ".9", ".99", ".991",
            ] {
                texts.push(format!("{whole}{fraction}"));
                texts.push(format!("-{whole}{fraction}"));
            }
        }
        for sign in ["", "-"] {
            for bound in bounds {
                let bound = format!("{sign}{bound}");
                let b: f64 = bound.parse().unwrap();
                for compare in [
                    Compare::Less,
                    Compare::AtMost,
                    Compare::AtLeast,
                    Compare::More,
                ] {
                    let ast = numbers.compared(compare, &decimal(&bound));
                    let mut builder = llguidance::derivre::RegexBuilder::new();
                    let expr = builder.mk(&ast.to_ast()).unwrap();
                    let mut rx = builder.into_regex(expr);
                    for text in &texts {
                        let v: f64 = text.parse().unwrap();
                        if v == 0.0 && text.starts_with('-') {
                            assert!(!rx.is_match(text), "negative zero {text}");
                            continue;
                        }
                        let want = match compare {
                            Compare::Less => v < b,
                            Compare::AtMost => v <= b,
                            Compare::AtLeast => v >= b,
                            Compare::More => v > b,
                        };
                        assert_eq!(rx.is_match(text), want, "{text} {compare:?} {bound}");
                    }
                }
            }
        }
    }

    #[test]
    fn equality_multiples_and_wholeness() {
        let numbers = Numbers::new(Digits::default());
        let five = numbers.equal(&decimal("5"));
        assert_eq!(five.matches("5.00", &mut 1_000_000), Some(true));
        assert_eq!(five.matches("5.01", &mut 1_000_000), Some(false));
        let threes = numbers.multiple(&decimal("3")).unwrap();
        assert_eq!(threes.matches("-6", &mut 1_000_000), Some(true));
        assert_eq!(threes.matches("7", &mut 1_000_000), Some(false));
        let others = numbers.not_multiple(&decimal("3")).unwrap();
        assert_eq!(others.matches("7", &mut 1_000_000), Some(true));
        assert_eq!(others.matches("6", &mut 1_000_000), Some(false));
        assert_eq!(others.matches("6.5", &mut 1_000_000), Some(true));
        assert_eq!(others.matches("6.0", &mut 1_000_000), Some(false));
        let cents = numbers.multiple(&decimal("0.01")).unwrap();
        assert_eq!(cents.matches("1.25", &mut 1_000_000), Some(true));
        assert_eq!(cents.matches("1.255", &mut 1_000_000), Some(false));
        assert_eq!(
            numbers.fractional().matches("2.50", &mut 1_000_000),
            Some(true)
        );
        assert_eq!(
            numbers.fractional().matches("2.0", &mut 1_000_000),
            Some(false)
        );
        assert_eq!(
            numbers.any().matches("-1.5e-10", &mut 1_000_000),
            Some(true)
        );
        assert_eq!(numbers.integer().matches("-0", &mut 1_000_000), Some(false));
    }
}
