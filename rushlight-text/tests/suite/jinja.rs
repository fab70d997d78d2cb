//! The dialect: what `transformers`' Jinja environment does, construct by construct.

use rushlight_text::{
    ChatTemplate, RenderRequest, TemplateSource, TemplateTokens, TextError, TextErrorKind,
};
use serde_json::{Value, json};

fn try_render(source: &str, data: Value) -> Result<String, TextError> {
    let tokens = TemplateTokens {
        special: vec![("bos_token".to_owned(), "<s>".to_owned())],
        control: vec!["<s>".to_owned()],
    };
    let template = ChatTemplate::new(&TemplateSource::One(source.to_owned()), tokens)?;
    let messages = json!([]);
    let request = RenderRequest::new(&messages).with_variable("x", data);
    template.render(&request).map(|rendered| rendered.text)
}

fn render(source: &str, data: Value) -> String {
    try_render(source, data).unwrap_or_else(|error| panic!("{source}: {error}"))
}

#[test]
fn expressions_print_as_python_prints() {
    for (source, data, expected) in [
        ("{{ x }}", json!(null), "None"),
        ("{{ x }}", json!(true), "True"),
        ("{{ x }}", json!(1.0), "1.0"),
        ("{{ x }}", json!(1e16), "1e+16"),
        (
            "{{ x }}",
            json!({"a": [1, "b", null]}),
            "{'a': [1, 'b', None]}",
        ),
        ("{{ 'v' ~ x }}", json!(false), "vFalse"),
        ("{{ missing }}|{{ bos_token }}", json!(0), "|<s>"),
        ("{{ x | string }}", json!(3), "3"),
        ("{{ x[::-1] | join }}", json!(["a", "b"]), "ba"),
        ("{{ x[1:] }}", json!("éàü"), "àü"),
        ("{{ x[-1] }}", json!("abc"), "c"),
        ("{{ 7 // 2 }} {{ 2 ** 3 }} {{ 7 % 3 }}", json!(0), "3 8 1"),
    ] {
        assert_eq!(render(source, data), expected, "{source}");
    }
}

#[test]
fn tojson_writes_as_json_dumps() {
    for (source, data, expected) in [
        (
            "{{ x | tojson }}",
            json!({"b": "<é'\"\\\n\u{1}\u{7f}>", "a": [1, 2.0, 1e-7, true, null, {}, []]}),
            "{\"b\": \"<é'\\\"\\\\\\n\\u0001\u{7f}>\", \"a\": [1, 2.0, 1e-07, true, null, {}, []]}",
        ),
        (
            "{{ x | tojson(indent=2) }}",
            json!({"a": [1, {}], "b": []}),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
        ),
        ("{{ x | tojson(indent=none) }}", json!([1, 2]), "[1, 2]"),
        (
            "{{ x | tojson(separators=(',', ':')) }}",
            json!({"a": [1, 2]}),
            "{\"a\":[1,2]}",
        ),
        (
            "{{ x | tojson(sort_keys=true) }}",
            json!({"b": 1, "a": 2}),
            "{\"a\": 2, \"b\": 1}",
        ),
        (
            "{{ x | tojson(ensure_ascii=true) }}",
            json!("é🦀"),
            "\"\\u00e9\\ud83e\\udd80\"",
        ),
        ("{{ x | tojson(true) }}", json!("é"), "\"\\u00e9\""),
        (
            "{{ x | tojson }}",
            json!(18446744073709551615u64),
            "18446744073709551615",
        ),
    ] {
        assert_eq!(render(source, data), expected, "{source}");
    }
    let error = try_render("{{ missing | tojson }}", json!(0)).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::TemplateFailed);
    assert!(error.message().contains("not JSON serializable"), "{error}");
}

#[test]
fn python_methods() {
    for (source, data, expected) in [
        (
            "{{ x.strip() }}|{{ x.lstrip() }}|{{ x.rstrip() }}",
            json!("\u{1f} a "),
            "a|a |\u{1f} a",
        ),
        ("{{ x | trim }}", json!("\n\u{1c}a \t"), "a"),
        ("{{ x.split('</t>')[-1] }}", json!("a</t>b</t>c"), "c"),
        ("{{ x.split() | join('|') }}", json!("  a b\n c "), "a|b|c"),
        ("{{ x.split('-', 1) }}", json!("a-b-c"), "['a', 'b-c']"),
        ("{{ x.rsplit('-', 1) }}", json!("a-b-c"), "['a-b', 'c']"),
        ("{{ x.splitlines() }}", json!("a\r\nb"), "['a', 'b']"),
        (
            "{{ x.startswith('a') and x.endswith(('z', 'c')) }}",
            json!("abc"),
            "True",
        ),
        ("{{ x.replace('a', 'b').upper() }}", json!("aa"), "BB"),
        ("{{ x.partition('=')[2] }}", json!("k=v=w"), "v=w"),
        ("{{ x.rpartition('=')[0] }}", json!("k=v=w"), "k=v"),
        (
            "{{ x.removeprefix('a').removesuffix('c') }}",
            json!("abc"),
            "b",
        ),
        (
            "{{ x.title() }} {{ x.capitalize() }}",
            json!("ab cd"),
            "Ab Cd Ab cd",
        ),
        ("{{ x.find('c') }} {{ x.count('a') }}", json!("éac"), "2 1"),
        ("{{ ', '.join(x) }}", json!(["a", "b"]), "a, b"),
        (
            "{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}",
            json!({"b": 1, "a": 2}),
            "b=1;a=2;",
        ),
        (
            "{{ x.get('k') }} {{ x.get('q', 'd') }}",
            json!({"k": 1}),
            "1 d",
        ),
        (
            "{{ x.keys() | list }}",
            json!({"b": 1, "a": 2}),
            "['b', 'a']",
        ),
        (
            "{{ '%s-%d' | format('a', 3) }} {{ '{}'.format(x) }}",
            json!(1),
            "a-3 1",
        ),
    ] {
        assert_eq!(render(source, data), expected, "{source}");
    }
}

#[test]
fn tests_follow_jinja2() {
    for (source, data, expected) in [
        (
            "{{ x is string }} {{ x is sequence }} {{ x is iterable }} {{ x is mapping }}",
            json!("a"),
            "True True True False",
        ),
        (
            "{{ x is string }} {{ x is sequence }} {{ x is iterable }} {{ x is mapping }}",
            json!({}),
            "False True True True",
        ),
        (
            "{{ x is sequence }} {{ x is none }} {{ x is defined }}",
            json!([]),
            "True False True",
        ),
        (
            "{{ x is none }} {{ y is defined }} {{ x is not none }}",
            json!(null),
            "True False False",
        ),
        (
            "{{ x is true }} {{ x is boolean }}",
            json!(true),
            "True True",
        ),
        (
            "{{ tools is none }} {{ documents is defined }}",
            json!(0),
            "True True",
        ),
    ] {
        assert_eq!(render(source, data), expected, "{source}");
    }
}

#[test]
fn blocks_and_white_space() {
    for (source, expected) in [
        ("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"),
        ("a\n\n", "a\n"),
        ("{{ 'a' }}\n{{ 'b' }}", "a\nb"),
        ("x {%- if true %} y {%- endif %} z", "x y z"),
        (
            "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        (
            "{% for i in [1,2] %}{{ loop.index0 }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
            "0False2;1True1;",
        ),
        (
            "{% set ns = namespace(a=1) %}{% for i in [1,2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
            "4",
        ),
        (
            "{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{% endfor %}{{ a }}",
            "1",
        ),
        (
            "{% macro m(a, b='d') %}[{{ a }}{{ b }}]{% endmacro %}{{ m('x') }}{{ m('x', b='y') }}",
            "[xd][xy]",
        ),
        ("a{% generation %}b\n{% endgeneration %}\nc", "ab\nc"),
        (
            "{%- set t %}captured{% endset -%}{{ t | upper }}",
            "CAPTURED",
        ),
        ("{# comment #}{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
        ("{{ 'a' if false }}|{{ ('b' if true else 'c') }}", "|b"),
        (
            "{% if x is not defined or not x %}n{% else %}y{% endif %}",
            "n",
        ),
    ] {
        assert_eq!(render(source, json!(0)), expected, "{source}");
    }
}

#[test]
fn a_raised_message_is_passed_on_word_for_word() {
    let source = "line one\n{% macro m() %}{{ raise_exception('Only user, \"x\" & ü!') }}{% endmacro %}{{ m() }}";
    let error = try_render(source, json!(0)).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::TemplateRaised);
    assert_eq!(error.message(), "Only user, \"x\" & ü!");
    // Said once, by no cause again.
    assert!(std::error::Error::source(&error).is_none());
}

#[test]
fn what_a_template_cannot_take_is_told_from_what_it_cannot_do() {
    let user = |content: serde_json::Value| json!([{"role": "user", "content": content}]);
    let render = |source: &str, messages: &serde_json::Value| {
        let source = TemplateSource::One(source.to_owned());
        let template = ChatTemplate::new(&source, TemplateTokens::default()).unwrap();
        let rendered = template.render(&RenderRequest::new(messages));
        rendered.map(|rendered| rendered.text)
    };
    let joins = "{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}";
    let strips = "{% for m in messages %}{{ m.content.strip() }}{% endfor %}";
    for source in [joins, strips] {
        assert!(render(source, &user(json!("Hi"))).is_ok());
        for messages in [
            user(json!(null)),
            user(json!([{"type": "text", "text": "Hi"}])),
            json!([{"role": "user"}]),
        ] {
            let error = render(source, &messages).unwrap_err();
            assert_eq!(error.kind(), TextErrorKind::TemplateRejected, "{error}");
            assert!(error.to_string().contains("cannot take"), "{error}");
            assert!(error.place().unwrap().line_column.is_some());
        }
    }
    // Plain text fails, too: the template is at fault.
    for source in [
        "{{ messages[0].content.nonsense() }}",
        "{{ 1 + messages[0].content }}",
    ] {
        for content in [json!("Hi"), json!(null)] {
            let error = render(source, &user(content)).unwrap_err();
            assert_ne!(error.kind(), TextErrorKind::TemplateRejected, "{error}");
        }
    }
    // Nothing is said twice.
    let error = render(joins, &user(json!(null))).unwrap_err();
    let said = error.to_string();
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    assert!(cause.is_none_or(|cause| !said.contains(&cause)), "{said}");
}

#[test]
fn errors_say_where() {
    for (source, kind, place) in [
        (
            "a\n  {{ x.nonsense() }}",
            TextErrorKind::TemplateUnsupported,
            (2, 7),
        ),
        (
            "{{ x.append(3) }}",
            TextErrorKind::TemplateUnsupported,
            (1, 5),
        ),
        (
            "é {{ x | nonsense }}",
            TextErrorKind::TemplateUnsupported,
            (1, 10),
        ),
        (
            "{{ x is nonsense }}",
            TextErrorKind::TemplateUnsupported,
            (1, 9),
        ),
        (
            "{{ nonsense() }}",
            TextErrorKind::TemplateUnsupported,
            (1, 4),
        ),
        ("\n{{ y.a.b }}", TextErrorKind::TemplateFailed, (2, 4)),
        (
            "{% generation %}{% endgeneration %}{{ 1 + 'a' }}",
            TextErrorKind::TemplateFailed,
            (1, 39),
        ),
    ] {
        let error = try_render(source, json!([])).unwrap_err();
        assert_eq!(error.kind(), kind, "{source}: {error}");
        assert_eq!(
            error.place().unwrap().line_column,
            Some(place),
            "{source}: {error}"
        );
    }
    let error = try_render("a\n{% if %}", json!(0)).unwrap_err();
    assert_eq!(error.kind(), TextErrorKind::TemplateSyntax);
    assert_eq!(error.place().unwrap().line_column.unwrap().0, 2);
}
