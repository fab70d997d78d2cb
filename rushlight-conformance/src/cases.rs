//! One small graph a case: the operation under test between a look-up and a head, with the file that
//! holds its weights.

use rushlight_asset::config::{Activation, Rope, RopeScaling};
use rushlight_asset::{Checkpoint, Format};
use rushlight_ir::IrError;
use rushlight_ir::graph::{Graph, GraphBuilder, StateKind, StateSpec};
use rushlight_ir::op::{Op, ValueId};
use rushlight_ir::rope::RopeTable;
use rushlight_testkit::gguf::GgufBuilder;

/// Ids of every case.
const VOCAB: usize = 40;
/// Columns that every block format can have.
const WIDTH: usize = 256;

/// A graph, its weights, and how near a backend must come.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) graph: Graph,
    pub(crate) tokens: Vec<u32>,
    /// Relative to the largest logit of the reference.
    pub(crate) tolerance: f32,
    /// The format of the weights that are not the test's own (`x.weight` and the like).
    formats: Vec<(String, Format)>,
}

/// f32 arithmetic in another order.
const EXACT: f32 = 2e-5;
/// Products of block formats take activations as 8-bit codes: an error of half a code, in 256 columns
/// of random sign, against the largest of the results.
const INT8: f32 = 0.02;

impl Case {
    /// The file with weights of all kinds, opened as any other.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        let folder = tempfile::tempdir().expect("a folder of its own");
        let path = folder.path().join("case.gguf");
        let mut file = GgufBuilder::tiny_llama();
        for name in Checkpoint::open(&write(&file, &path))
            .expect("the tiny llama")
            .weights
            .iter()
        {
            file = file.without_tensor(name.stored_name());
        }
        for (seed, spec) in self.graph.weights().iter().enumerate() {
            let format = self.formats.iter().find(|(name, _)| *name == spec.name);
            let format = format.map_or(Format::F32, |(_, format)| *format);
            let elements: usize = spec.shape.iter().product();
            let shape: Vec<u64> = spec.shape.iter().map(|&n| n as u64).collect();
            file = file.tensor(
                &spec.name,
                &shape,
                ggml_id(format),
                &random(format, elements, seed as u32),
            );
        }
        // The mapping outlives the folder, as it does a deleted model.
        Checkpoint::open(&write(&file, &path)).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }
}

fn write(file: &GgufBuilder, path: &std::path::Path) -> std::path::PathBuf {
    file.write(path).expect("a temporary file");
    path.to_owned()
}

/// Every operation; those that read a matrix once in every format.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for format in Format::ALL {
        cases.push(case(
            &format!("embed {format}"),
            EXACT,
            &[("embed", format)],
            |_, x| Ok(x),
        ));
        let product = if format.is_float() { EXACT } else { INT8 };
        for (rows, bias) in [(WIDTH, false), (33, false), (33, true)] {
            let name = format!("matmul {format}, {rows} rows, bias {bias}");
            cases.push(case(&name, product, &[("w", format)], |g, x| {
                let weight = g.weight("w", &[rows, WIDTH])?;
                let bias = if bias {
                    Some(g.weight("b", &[rows])?)
                } else {
                    None
                };
                g.push(Op::MatMul { weight, bias }, &[x])
            }));
        }
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let name = format!("glu_mlp {format} {activation:?}");
            let formats = [("gate", format), ("up", format), ("down", format)];
            cases.push(case(&name, product, &formats, |g, x| {
                let gate = g.weight("gate", &[2 * WIDTH, WIDTH])?;
                let up = g.weight("up", &[2 * WIDTH, WIDTH])?;
                let down = g.weight("down", &[WIDTH, 2 * WIDTH])?;
                // Small, so that neither activation is a straight line.
                let x = norm(g, x, WIDTH, 0.0)?;
                g.push(
                    Op::GluMlp {
                        gate,
                        up,
                        down,
                        activation,
                    },
                    &[x],
                )
            }));
        }
    }
    for (width, offset) in [(WIDTH, 0.0), (32, 0.0), (WIDTH, 1.0), (1, 1.0)] {
        let name = format!("rms_norm of {width}, offset {offset}");
        cases.push(case(&name, EXACT, &[], |g, x| norm(g, x, width, offset)));
    }
    for (heads, dim, scaling) in [
        (8, 32, RopeScaling::None),
        (2, 64, RopeScaling::Linear { factor: 4.0 }),
        (1, 256, RopeScaling::None),
    ] {
        let name = format!("rope of {dim} elements, {heads} heads, {scaling:?}");
        cases.push(case(&name, EXACT, &[], |g, x| {
            let table = RopeTable::new(&Rope {
                theta: 10000.0,
                dim,
                scaling: scaling.clone(),
            })?;
            let rope = g.rope(table);
            g.push(
                Op::Rope {
                    rope,
                    heads,
                    head_dim: WIDTH / heads,
                },
                &[x],
            )
        }));
    }
    for (heads, kv_heads, kind, softcap) in [
        (4, 4, StateKind::Kv, None),
        (8, 2, StateKind::Kv, None),
        (3, 1, StateKind::Kv, Some(2.0)),
        (4, 2, StateKind::Window { tokens: 5 }, None),
        (4, 2, StateKind::Window { tokens: 1 }, Some(1.0)),
        (4, 1, StateKind::Window { tokens: 33 }, None),
    ] {
        let name =
            format!("attention of {heads} over {kv_heads} heads, {kind:?}, softcap {softcap:?}");
        // 24 elements a head: not a power of two, three vectors.
        cases.push(case(&name, EXACT, &[], |g, x| {
            let head_dim = 24;
            let project = |g: &mut GraphBuilder, name: &str, heads: usize| {
                let weight = g.weight(name, &[heads * head_dim, WIDTH])?;
                g.push(Op::MatMul { weight, bias: None }, &[x])
            };
            let (q, k, v) = (
                project(g, "q", heads)?,
                project(g, "k", kv_heads)?,
                project(g, "v", kv_heads)?,
            );
            let state = g.state(StateSpec {
                name: "kv".to_owned(),
                kind,
                kv_heads,
                head_dim,
            });
            g.push(
                Op::Attention {
                    state,
                    heads,
                    scale: 0.02,
                    softcap,
                },
                &[q, k, v],
            )
        }));
    }
    cases.push(case("add of two values", EXACT, &[], |g, x| {
        let y = norm(g, x, WIDTH, 0.0)?;
        let z = g.push(Op::Add, &[x, y])?;
        // `x` is read again, so the first sum may not be in its place.
        g.push(Op::Add, &[x, z])
    }));
    cases.push(case("add of a value to itself", EXACT, &[], |g, x| {
        g.push(Op::Add, &[x, x])
    }));
    cases.push(case("softcap", EXACT, &[], |g, x| {
        let y = g.push(Op::Softcap { cap: 0.5 }, &[x])?;
        g.push(Op::Add, &[x, y])
    }));
    cases
}

fn norm(g: &mut GraphBuilder, x: ValueId, width: usize, offset: f32) -> Result<ValueId, IrError> {
    let weight = g.weight("norm", &[width])?;
    g.push(
        Op::RmsNorm {
            weight,
            width,
            eps: 1e-6,
            offset,
        },
        &[x],
    )
}

fn case(
    name: &str,
    tolerance: f32,
    formats: &[(&str, Format)],
    middle: impl FnOnce(&mut GraphBuilder, ValueId) -> Result<ValueId, IrError>,
) -> Case {
    let build = || {
        let mut g = GraphBuilder::new("main", VOCAB, 512);
        let table = g.weight("embed", &[VOCAB, WIDTH])?;
        let tokens = g.tokens();
        let x = g.push(Op::Embed { table, scale: 0.5 }, &[tokens])?;
        let y = middle(&mut g, x)?;
        let y = g.push(Op::SelectOutputs, &[y])?;
        let cols = g.shape(y).cols;
        let head = g.weight("head", &[VOCAB, cols])?;
        let logits = g.push(
            Op::MatMul {
                weight: head,
                bias: None,
            },
            &[y],
        )?;
        g.finish(logits)
    };
    Case {
        name: name.to_owned(),
        graph: build().unwrap_or_else(|e| panic!("{name}: {e}")),
        // More than a page of states, and not a whole number of tiles.
        tokens: (0..43).map(|i| (i * i + 3 * i) % VOCAB as u32).collect(),
        tolerance,
        formats: formats
            .iter()
            .map(|(name, format)| ((*name).to_owned(), *format))
            .collect(),
    }
}

fn ggml_id(format: Format) -> u32 {
    (0..64)
        .find(|id| Format::from_ggml(*id) == Some(format))
        .expect("every format has a number")
}

/// Elements of a format: floats in −1..1, or blocks of random codes under scales of about 1/100.
fn random(format: Format, elements: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = move || {
        // xorshift32 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    };
    let mut float = {
        let mut next = next;
        move || (next() >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    let scale = half::f16::from_f32(0.011).to_le_bytes();
    let half_fields: &[usize] = match format {
        Format::F32 => return (0..elements).flat_map(|_| float().to_le_bytes()).collect(),
        Format::F16 => {
            return (0..elements)
                .flat_map(|_| half::f16::from_f32(float()).to_le_bytes())
                .collect();
        }
        Format::BF16 => {
            return (0..elements)
                .flat_map(|_| half::bf16::from_f32(float()).to_le_bytes())
                .collect();
        }
        Format::Q8_0 | Format::Q4_0 | Format::Q5_0 | Format::IQ4_NL | Format::IQ4_XS => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q2_K => &[80, 82],
        Format::Q3_K => &[108],
        Format::Q6_K => &[208],
        Format::MXFP4 => &[],
    };
    let bytes = elements / format.block_len() * format.block_bytes();
    let mut data: Vec<u8> = (0..bytes).map(|_| (next() >> 16) as u8).collect();
    for block in data.chunks_mut(format.block_bytes()) {
        for &at in half_fields {
            block[at..at + 2].copy_from_slice(&scale);
        }
        if format == Format::MXFP4 {
            // 2^(121 - 127).
            block[0] = 121;
        }
    }
    data
}
