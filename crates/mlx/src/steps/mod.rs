//! The steps of layers with a state, row by row: as a plan of MLX's operations, which is right wherever
//! MLX runs and slow for long prompts, or by a kernel of our own (`step.metal`), where MLX has Metal.
//!
//! The plan is the definition. A kernel is used after it has computed an example as the plan does, on the
//! machine it is to be used on; if it has not, the plan goes on being used, and why is said.
//!
//! What is between these steps and the rows of a layer (convolutions, gates, norms) is in `recurrent.rs`.

use std::sync::OnceLock;

use crate::ffi::kernel::{self, Kernel, Known, Launch};
use crate::ffi::{Array, Dtype, Fault, begin, concatenate};
use crate::{Mlx, bytes_of};

/// Rows after which a state is computed, so that no plan grows without end.
const ROWS_PER_PLAN: usize = 64;
/// Columns of a matrix that a group of threads has. As many threads as Metal runs in step.
const WIDTH: usize = 32;
/// Threads that share a column.
const PARTS: usize = 8;
/// How far the kernel's example may be from the plan's, of numbers of about one.
const TOLERANCE: f32 = 1e-4;

/// What the rows of a sequence bring. A matrix of each head goes through all of them: it decays, takes in
/// `key * news`, and is read by `query`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    /// `[rows, heads, k]`.
    pub(crate) keys: &'a Array,
    /// Likewise.
    pub(crate) queries: &'a Array,
    /// `[rows, heads, v]`.
    pub(crate) values: &'a Array,
    /// What is left of a matrix, `[rows, heads, 1]`, or of each of its rows, `[rows, heads, k]`.
    pub(crate) decays: &'a Array,
    /// `[rows, heads, 1]` under the delta rule: news is the value without what the matrix has for the key
    /// already, times this. Otherwise it is the value.
    pub(crate) strengths: Option<&'a Array>,
}

/// A sequence's way through a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps<'a> {
    pub(crate) rows: Rows<'a>,
    /// The matrices before the first row, `[1, heads * k * v]`.
    pub(crate) before: &'a Array,
    /// After which rows they are kept, ascending.
    pub(crate) stops: &'a [usize],
}

/// What comes of it.
#[derive(Debug)]
pub(crate) struct Stepped {
    /// What is read, `[rows, heads, v]`.
    pub(crate) said: Array,
    /// The matrices at each stop, `[1, heads * k * v]`.
    pub(crate) kept: Vec<Array>,
}

/// What takes layers with a state through their rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepsBy<'a> {
    /// Our own kernel, which computed its example right on this machine.
    Kernel,
    /// Plans of MLX's operations, and why.
    Plan(&'a str),
}

/// The kernel, once somebody has asked for it, or why there is none.
pub(crate) type Proven = OnceLock<Result<Kernel, String>>;

impl Mlx {
    /// What takes layers with a state through their rows. Compiles and tries the kernel where that is
    /// possible and nobody has asked before.
    pub fn steps_by(&self) -> StepsBy<'_> {
        match self.step_kernel() {
            Ok(_) => StepsBy::Kernel,
            Err(why) => StepsBy::Plan(why),
        }
    }

    fn step_kernel(&self) -> Result<&Kernel, &str> {
        let proven = || -> Result<Kernel, String> {
            if !kernel::are_possible() {
                return Err("MLX has no Metal here".to_owned());
            }
            let kernel = Steps::kernel().map_err(|Fault(why)| why)?;
            let off = off_by(|steps| steps.by_kernel(&kernel)).map_err(|Fault(why)| why)?;
            // Written so that no number is not near enough.
            match off <= TOLERANCE {
                true => Ok(kernel),
                false => Err(format!("the kernel's example is {off} off")),
            }
        };
        self.kernel.get_or_init(proven).as_ref().map_err(String::as_str)
    }

    /// Takes a sequence through its rows.
    pub(crate) fn take(&self, steps: &Steps<'_>) -> Result<Stepped, Fault> {
        match self.step_kernel() {
            Ok(kernel) => steps.by_kernel(kernel),
            Err(_) => steps.by_plan(),
        }
    }
}

impl Steps<'_> {
    /// `[heads, k, v]`.
    fn matrices(&self) -> [usize; 3] {
        let Rows { keys, values, .. } = self.rows;
        [keys.dim(1), keys.dim(2), values.dim(2)]
    }

    /// As a plan of a dozen operations for every row.
    pub(crate) fn by_plan(&self) -> Result<Stepped, Fault> {
        let Rows { keys, queries, values, decays, strengths } = self.rows;
        let ([heads, k, v], rows) = (self.matrices(), keys.dim(0));
        let (mut said, mut kept) = (Vec::with_capacity(rows), Vec::new());
        let mut state = self.before.reshape(&[heads, k, v])?;
        for row in 0..rows {
            let at = |x: &Array, shape: [usize; 3]| x.slice(0, row..row + 1)?.reshape(&shape);
            let (key, query) = (at(keys, [heads, k, 1])?, at(queries, [heads, k, 1])?);
            let value = at(values, [heads, 1, v])?;
            state = state.multiply(&at(decays, [heads, decays.dim(2), 1])?)?;
            let news = match strengths {
                Some(strengths) => {
                    let known = state.multiply(&key)?.sum(1)?;
                    value.subtract(&known)?.multiply(&at(strengths, [heads, 1, 1])?)?
                }
                None => value,
            };
            state = state.add(&key.multiply(&news)?)?;
            said.push(state.multiply(&query)?.sum(1)?.reshape(&[1, heads, v])?);
            if self.stops.contains(&row) {
                kept.push(state.reshape(&[1, heads * k * v])?);
            }
            if row % ROWS_PER_PLAN == ROWS_PER_PLAN - 1 {
                begin(&[&state])?;
            }
        }
        Ok(Stepped { said: concatenate(&said.iter().collect::<Vec<_>>(), 0)?, kept })
    }

    fn kernel() -> Result<Kernel, Fault> {
        let inputs =
            ["keys", "queries", "values", "decays", "strengths", "before", "counts", "stops"];
        Kernel::new("steps", (&inputs, &["said", "kept"]), include_str!("step.metal"))
    }

    /// By the kernel, all rows at once.
    fn by_kernel(&self, kernel: &Kernel) -> Result<Stepped, Fault> {
        let Rows { keys, queries, values, decays, strengths } = self.rows;
        let ([heads, k, v], rows, n_kept) = (self.matrices(), keys.dim(0), self.stops.len());
        let whole = |x: &[usize]| {
            let numbers: Vec<i32> = x.iter().map(|x| *x as i32).collect();
            Array::new(&bytes_of(&numbers, i32::to_le_bytes), &[x.len()], Dtype::I32)
        };
        // Nothing has no address: there is room for one stop at least.
        let stops = if n_kept == 0 { &[0] } else { self.stops };
        let (counts, stops) = (whole(&[rows, n_kept])?, whole(stops)?);
        // There has to be something, which is not looked at.
        let some = strengths.unwrap_or(decays);
        let inputs = [keys, queries, values, decays, some, self.before, &counts, &stops];
        let known = [
            ("K", Known::Int(k)),
            ("V", Known::Int(v)),
            ("HEADS", Known::Int(heads)),
            ("WIDTH", Known::Int(WIDTH)),
            ("PARTS", Known::Int(PARTS)),
            ("DELTA", Known::Bool(strengths.is_some())),
            ("CHANNELS", Known::Bool(decays.dim(2) > 1)),
        ];
        let launch = Launch {
            inputs: &inputs,
            outputs: &[&[rows, heads, v], &[n_kept.max(1), heads * k * v]],
            known: &known,
            threads: [v.next_multiple_of(WIDTH), PARTS, heads],
            group: [WIDTH, PARTS, 1],
        };
        let [said, kept] = &kernel.launch(&launch)?[..] else {
            return Err(Fault("the kernel gives something else".to_owned()));
        };
        let kept = (0..n_kept).map(|i| kept.slice(0, i..i + 1)).collect::<Result<_, _>>()?;
        Ok(Stepped { said: said.clone(), kept })
    }
}

/// Numbers of the example: rows, heads, rows and columns of a matrix. None of them divides anything.
const EXAMPLE: [usize; 4] = [5, 3, 20, 37];

/// The largest difference between what `other` makes of examples of both rules and what plans make of
/// them, relative to numbers of more than one.
fn off_by(other: impl Fn(&Steps<'_>) -> Result<Stepped, Fault>) -> Result<f32, Fault> {
    let [rows, heads, k, v] = EXAMPLE;
    let wave = |n: usize, speed: f32| -> Vec<f32> {
        (0..n).map(|i| libm::sinf(speed * (i as f32 + 1.0))).collect()
    };
    let numbers =
        |speed: f32, shape: &[usize]| crate::floats(&wave(shape.iter().product(), speed), shape);
    let (keys, queries) = (numbers(0.7, &[rows, heads, k])?, numbers(1.1, &[rows, heads, k])?);
    let values = numbers(1.3, &[rows, heads, v])?;
    let (each, all) = (numbers(0.9, &[rows, heads, k])?, numbers(0.4, &[rows, heads, 1])?);
    let before = numbers(0.3, &[1, heads * k * v])?;
    let mut worst = 0.0f32;
    for (decays, strengths) in
        [(&all, Some(&all)), (&each, Some(&all)), (&all, None), (&each, None)]
    {
        // Between nought and one.
        let (decays, strengths) = (decays.sigmoid()?, strengths.map(Array::sigmoid).transpose()?);
        let (keys, strengths) = (&keys.times(0.3)?, strengths.as_ref());
        let (queries, values, decays) = (&queries, &values, &decays);
        let rows = Rows { keys, queries, values, decays, strengths };
        let steps = Steps { rows, before: &before, stops: &[1, EXAMPLE[0] - 1] };
        let (got, want) = (other(&steps)?.numbers()?, steps.by_plan()?.numbers()?);
        if got.len() != want.len() {
            return Err(Fault("the kernel gives something else".to_owned()));
        }
        for (got, want) in got.iter().zip(&want) {
            let off = (got - want).abs() / want.abs().max(1.0);
            worst = if off.is_nan() { f32::NAN } else { worst.max(off) };
            if worst.is_nan() {
                return Ok(worst);
            }
        }
    }
    Ok(worst)
}

impl Stepped {
    /// All of it, what is read first.
    fn numbers(&self) -> Result<Vec<f32>, Fault> {
        let mut numbers = Vec::new();
        for array in [&self.said].into_iter().chain(&self.kept) {
            array.read(|bytes| {
                numbers.extend(bytes.as_chunks().0.iter().map(|x| f32::from_le_bytes(*x)));
            })?;
        }
        Ok(numbers)
    }
}

#[cfg(feature = "installed-mlx")]
#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::Options;

    fn mlx() -> Mlx {
        let library = std::env::var_os("HEARTH_MLX").expect("HEARTH_MLX names MLX's C library");
        let options = Options { library: Some(library.into()), ..Options::default() };
        Mlx::open(&options).expect("the library that HEARTH_MLX names")
    }

    /// The kernel's body as a program for this machine's processor.
    struct Program(PathBuf);

    impl Program {
        fn new() -> Program {
            let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/mlx");
            let [_, heads, k, v] = EXAMPLE;
            let numbers =
                [("HEADS", heads), ("K", k), ("V", v), ("WIDTH", WIDTH), ("PARTS", PARTS)];
            let program = std::env::temp_dir().join(format!("hearth-step-{}", std::process::id()));
            let mut compiler = Command::new("c++");
            compiler.args(["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
            compiler.args(numbers.map(|(name, n)| format!("-DOF_{name}={n}")));
            compiler.arg(tools.join("step.cpp")).arg("-o").arg(&program);
            assert!(compiler.status().expect("a compiler for C++").success());
            Program(program)
        }

        /// What the kernel would give.
        fn run(&self, steps: &Steps<'_>) -> Result<Stepped, Fault> {
            let Rows { keys, queries, values, decays, strengths } = steps.rows;
            let (rows, [heads, k, v], n_kept) = (keys.dim(0), steps.matrices(), steps.stops.len());
            let flag = |is: bool| i32::from(is);
            let mut input = [flag(strengths.is_some()), flag(decays.dim(2) > 1)].to_vec();
            input.extend([rows, n_kept].iter().chain(steps.stops).map(|n| *n as i32));
            let mut input = bytes_of(&input, i32::to_le_bytes);
            let some = strengths.unwrap_or(decays);
            for array in [keys, queries, values, decays, some, steps.before] {
                array.read(|bytes| input.extend(bytes))?;
            }
            let mut command = Command::new(&self.0);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
            // All of it is read before anything is said.
            child.stdin.take().expect("a pipe").write_all(&input).expect("it reads");
            let out = child.wait_with_output().expect("it ends");
            assert!(out.status.success());
            let (said, kept) = out.stdout.split_at(4 * rows * heads * v);
            let array = |bytes: &[u8], shape: &[usize]| Array::new(bytes, shape, Dtype::F32);
            let numbers = heads * k * v;
            let kept = kept.chunks_exact(4 * numbers).map(|bytes| array(bytes, &[1, numbers]));
            let kept = kept.collect::<Result<Vec<_>, Fault>>()?;
            Ok(Stepped { said: array(said, &[rows, heads, v])?, kept })
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            // What is left over is a small file among temporary ones.
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// The kernel cannot be compiled for a GPU here, but for the processor.
    #[test]
    fn the_kernel_computes_what_plans_compute() {
        let _mlx = mlx();
        let program = Program::new();
        let off = off_by(|steps| program.run(steps)).unwrap();
        assert!(off <= 1e-6, "{off} off");
    }

    /// By the rule itself, in f64, one number after the other.
    fn by_rule(steps: &Steps<'_>) -> Result<Stepped, Fault> {
        let numbers = |array: &Array| -> Result<Vec<f64>, Fault> {
            let mut out = Vec::new();
            array.read(|bytes| {
                let all = bytes.as_chunks().0.iter();
                out = all.map(|x| f64::from(f32::from_le_bytes(*x))).collect();
            })?;
            Ok(out)
        };
        let Rows { keys, queries, values, decays, strengths } = steps.rows;
        let (rows, [heads, n_k, n_v], n_decays) = (keys.dim(0), steps.matrices(), decays.dim(2));
        let (keys, queries, values) = (numbers(keys)?, numbers(queries)?, numbers(values)?);
        let (decays, strengths) = (numbers(decays)?, strengths.map(numbers).transpose()?);
        let mut state = numbers(steps.before)?;
        let (mut said, mut kept) = (vec![0.0; rows * heads * n_v], Vec::new());
        for row in 0..rows {
            for head in 0..heads {
                let at = row * heads + head;
                for v in 0..n_v {
                    let place = |k: usize| (head * n_k + k) * n_v + v;
                    for k in 0..n_k {
                        state[place(k)] *= decays[at * n_decays + k.min(n_decays - 1)];
                    }
                    let known: f64 = (0..n_k).map(|k| state[place(k)] * keys[at * n_k + k]).sum();
                    let value = values[at * n_v + v];
                    let news = strengths.as_ref().map_or(value, |s| (value - known) * s[at]);
                    for k in 0..n_k {
                        state[place(k)] += keys[at * n_k + k] * news;
                    }
                    said[at * n_v + v] =
                        (0..n_k).map(|k| state[place(k)] * queries[at * n_k + k]).sum();
                }
            }
            if steps.stops.contains(&row) {
                kept.push(state.clone());
            }
        }
        let array = |x: &[f64], shape: &[usize]| {
            crate::floats(&x.iter().map(|x| *x as f32).collect::<Vec<_>>(), shape)
        };
        let kept = kept.iter().map(|x| array(x, &[1, x.len()])).collect::<Result<_, _>>()?;
        Ok(Stepped { said: array(&said, &[rows, heads, n_v])?, kept })
    }

    #[test]
    fn plans_compute_the_rule() {
        let _mlx = mlx();
        let off = off_by(by_rule).unwrap();
        assert!(off <= 1e-6, "{off} off");
    }

    #[test]
    fn where_there_is_no_metal_plans_are_used_and_why_is_said() {
        let mlx = mlx();
        assert_eq!(mlx.steps_by(), StepsBy::Plan("MLX has no Metal here"));
        let kernel = Steps::kernel().unwrap();
        let error = off_by(|steps| steps.by_kernel(&kernel)).unwrap_err().to_string();
        assert!(error.contains("No Metal"), "{error}");
    }
}
