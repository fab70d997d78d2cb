//! JSON into template values, and template values into JSON as Python's `json.dumps` writes it.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// A JSON value as a template sees it: objects keep their order.
///
/// Recursive: the caller has bounded the depth.
pub(crate) fn to_template(value: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match value {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => {
            if let Some(number) = number.as_i64() {
                Value::from(number)
            } else if let Some(number) = number.as_u64() {
                Value::from(number)
            } else {
                Value::from(number.as_f64())
            }
        }
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(to_template).collect(),
        Json::Object(object) => Value::from_pairs(
            object
                .iter()
                .map(|(key, value)| (key.as_str(), to_template(value))),
        ),
    }
}

/// The layout that `json.dumps` takes as arguments.
struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// The `tojson` filter of `transformers`: `json.dumps(x, ensure_ascii=False, indent=None, separators=None,
/// sort_keys=False)`, without Jinja2's HTML escapes.
pub(crate) fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    positional: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let ensure_ascii = match positional {
        Some(flag) => flag,
        None => options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
    };
    let indent = match options.get::<Option<Value>>("indent")? {
        None => None,
        Some(indent) if indent.is_none() => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(i64::try_from(indent)?.clamp(0, 64)).unwrap_or(0)),
        }),
    };
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "separators must be a pair of strings",
            ));
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        state,
        style: Style {
            ensure_ascii,
            indent,
            item_separator,
            key_separator,
            sort_keys,
        },
        out: String::new(),
        paid: 0,
    };
    writer.value(value, 0)?;
    writer.pay()?;
    Ok(Value::from(writer.out))
}

struct Writer<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    style: Style,
    out: String,
    /// Bytes of `out` that fuel has paid for.
    paid: usize,
}

impl Writer<'_, '_, '_> {
    /// Pays for a value, and for what was written since the last time: one unit for 64 bytes.
    fn pay(&mut self) -> Result<(), Error> {
        let owed = (self.out.len() - self.paid) / 64;
        self.paid += owed * 64;
        self.state
            .consume_fuel(u64::try_from(owed + 1).unwrap_or(u64::MAX))
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.pay()?;
        if depth > super::MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::BadSerialization,
                "the value nests too deeply for JSON",
            ));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.open('[');
                let mut empty = true;
                for item in value.try_iter()? {
                    self.item(&mut empty, depth);
                    self.value(&item, depth + 1)?;
                }
                self.close(']', empty, depth);
            }
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                return Err(Error::new(
                    ErrorKind::BadSerialization,
                    format!("Object of type {kind} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.style.sort_keys {
            keys.sort();
        }
        self.open('{');
        let mut empty = true;
        for key in keys {
            self.item(&mut empty, depth);
            match key.kind() {
                ValueKind::String => self.string(key.as_str().unwrap_or_default()),
                ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                    self.out.push('"');
                    self.value(&key, depth + 1)?;
                    self.out.push('"');
                }
                kind => {
                    return Err(Error::new(
                        ErrorKind::BadSerialization,
                        format!("keys must be str, int, float, bool or None, not {kind}"),
                    ));
                }
            }
            self.out.push_str(&self.style.key_separator);
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.close('}', empty, depth);
        Ok(())
    }

    fn open(&mut self, bracket: char) {
        self.out.push(bracket);
    }

    fn item(&mut self, empty: &mut bool, depth: usize) {
        if !*empty {
            self.out.push_str(&self.style.item_separator);
        }
        *empty = false;
        self.new_line(depth + 1);
    }

    fn close(&mut self, bracket: char, empty: bool, depth: usize) {
        if !empty {
            self.new_line(depth);
        }
        self.out.push(bracket);
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
        } else {
            let number = f64::try_from(value.clone())?;
            self.out.push_str(&match number {
                n if n.is_nan() => "NaN".to_owned(),
                n if n == f64::INFINITY => "Infinity".to_owned(),
                n if n == f64::NEG_INFINITY => "-Infinity".to_owned(),
                n => float(n),
            });
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                // The marks of content are among these noncharacters, and must come out as they went in.
                '\u{FDD0}'..='\u{FDEF}' => self.out.push(c),
                c if c < ' ' || (self.style.ensure_ascii && !c.is_ascii()) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                '\u{7f}' if self.style.ensure_ascii => self.out.push(c),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A finite float as Python's `repr` writes it: the shortest digits that read back, with an exponent below 1e-4 and
/// from 1e16 on.
pub(crate) fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::float;

    #[test]
    fn floats_print_as_in_python() {
        for (number, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (123456.789, "123456.789"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
