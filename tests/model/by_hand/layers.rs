//! Layers that act on each row separately.

use super::{ByName, gradient};

/// `y = W x + b` with `W [outputs, inputs]`.
pub(super) struct Linear {
    weight: String,
    bias: Option<String>,
    inputs: usize,
    outputs: usize,
}

impl Linear {
    pub(super) fn new(name: &str, inputs: usize, outputs: usize) -> Self {
        Self {
            bias: Some(format!("{name}.bias")),
            ..Self::unbiased(name, inputs, outputs)
        }
    }

    /// A layer without `b`. An embedding of this name is also such a layer: its table has a row per output.
    pub(super) fn unbiased(name: &str, inputs: usize, outputs: usize) -> Self {
        Self {
            weight: format!("{name}.weight"),
            bias: None,
            inputs,
            outputs,
        }
    }

    pub(super) fn forward(&self, parameters: &ByName, x: &[f64]) -> Vec<f64> {
        let weight = &parameters[&self.weight];
        let rows = x.len() / self.inputs;
        let mut y = vec![0.0; rows * self.outputs];
        for row in 0..rows {
            for o in 0..self.outputs {
                let mut sum = self.bias.as_ref().map_or(0.0, |bias| parameters[bias][o]);
                for i in 0..self.inputs {
                    sum += weight[o * self.inputs + i] * x[row * self.inputs + i];
                }
                y[row * self.outputs + o] = sum;
            }
        }
        y
    }

    /// `d_x = Wᵀ d_y`, `d_W = Σ d_y xᵀ` and `d_b = Σ d_y`, where the sums are over the rows.
    pub(super) fn backward(
        &self,
        parameters: &ByName,
        x: &[f64],
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> Vec<f64> {
        let weight = &parameters[&self.weight];
        let rows = x.len() / self.inputs;
        let mut d_x = vec![0.0; x.len()];
        for row in 0..rows {
            for o in 0..self.outputs {
                let d_y = d_y[row * self.outputs + o];
                if let Some(bias) = &self.bias {
                    gradient(gradients, bias)[o] += d_y;
                }
                let d_weight = gradient(gradients, &self.weight);
                for i in 0..self.inputs {
                    d_weight[o * self.inputs + i] += d_y * x[row * self.inputs + i];
                    d_x[row * self.inputs + i] += weight[o * self.inputs + i] * d_y;
                }
            }
        }
        d_x
    }
}

/// `h = (x - mean(x)) / √(var(x) + 1e-5)` and `y = h * gain + bias`, for each row.
pub(super) struct LayerNorm {
    gain: String,
    bias: String,
    width: usize,
}

impl LayerNorm {
    pub(super) fn new(name: &str, width: usize) -> Self {
        Self {
            gain: format!("{name}.weight"),
            bias: format!("{name}.bias"),
            width,
        }
    }

    pub(super) fn forward(&self, parameters: &ByName, x: &[f64]) -> Vec<f64> {
        let gain = &parameters[&self.gain];
        let bias = &parameters[&self.bias];
        let mut y = Vec::new();
        for x in x.chunks(self.width) {
            let (h, _) = standardize(x);
            y.extend((0..self.width).map(|i| h[i] * gain[i] + bias[i]));
        }
        y
    }

    /// With `d_h = d_y * gain`: `d_x = (d_h - mean(d_h) - h * mean(d_h * h)) / √(var(x) + 1e-5)`, since `x` also moves the mean
    /// and the variance. `d_gain = Σ d_y * h` and `d_bias = Σ d_y`, over the rows.
    pub(super) fn backward(
        &self,
        parameters: &ByName,
        x: &[f64],
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> Vec<f64> {
        let gain = &parameters[&self.gain];
        let mut d_x = Vec::new();
        for (x, d_y) in x.chunks(self.width).zip(d_y.chunks(self.width)) {
            let (h, deviation) = standardize(x);
            let d_h: Vec<f64> = (0..self.width).map(|i| d_y[i] * gain[i]).collect();
            let along_ones = mean(d_h.iter().copied());
            let along_h = mean((0..self.width).map(|i| d_h[i] * h[i]));
            for i in 0..self.width {
                gradient(gradients, &self.gain)[i] += d_y[i] * h[i];
                gradient(gradients, &self.bias)[i] += d_y[i];
                d_x.push((d_h[i] - along_ones - h[i] * along_h) / deviation);
            }
        }
        d_x
    }
}

/// A row with the mean 0 and the variance 1, and its divisor.
fn standardize(x: &[f64]) -> (Vec<f64>, f64) {
    let center = mean(x.iter().copied());
    let variance = mean(x.iter().map(|x| (x - center).powi(2)));
    let deviation = (variance + 1e-5).sqrt();
    let h = x.iter().map(|x| (x - center) / deviation).collect();
    (h, deviation)
}

fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    numbers.sum::<f64>() / count
}

/// A row of the table for every id. Learned positions are one, too: the ids are then the positions in the sequence.
pub(super) struct Embedding {
    table: String,
    width: usize,
}

impl Embedding {
    pub(super) fn new(name: &str, width: usize) -> Self {
        Self {
            table: format!("{name}.weight"),
            width,
        }
    }

    pub(super) fn forward(&self, parameters: &ByName, ids: &[usize]) -> Vec<f64> {
        let table = &parameters[&self.table];
        let mut y = Vec::new();
        for id in ids {
            y.extend(&table[id * self.width..][..self.width]);
        }
        y
    }

    /// A repeated id gets the sum of the gradients.
    pub(super) fn backward(&self, ids: &[usize], d_y: &[f64], gradients: &mut ByName) {
        let d_table = gradient(gradients, &self.table);
        for (row, id) in ids.iter().enumerate() {
            for i in 0..self.width {
                d_table[id * self.width + i] += d_y[row * self.width + i];
            }
        }
    }
}

/// A function of one number, with its derivative.
#[derive(Clone, Copy)]
pub(super) struct Activation {
    value: fn(f64) -> f64,
    slope: fn(f64) -> f64,
}

pub(super) const RELU: Activation = Activation {
    value: |x| x.max(0.0),
    slope: |x| if x > 0.0 { 1.0 } else { 0.0 },
};

/// `x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`
pub(super) const GELU_TANH: Activation = Activation {
    value: |x| 0.5 * x * (1.0 + gelu_argument(x).tanh()),
    slope: |x| {
        let tanh = gelu_argument(x).tanh();
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
        0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner
    },
};

fn gelu_argument(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))
}

/// `y = W₂ act(W₁ x + b₁) + b₂`
pub(super) struct FeedForward {
    up: Linear,
    down: Linear,
    activation: Activation,
}

/// The saved values of a feed-forward layer.
pub(super) struct FeedForwardSaved {
    x: Vec<f64>,
    hidden: Vec<f64>,
    active: Vec<f64>,
}

impl FeedForward {
    pub(super) fn new(name: &str, width: usize, hidden: usize, activation: Activation) -> Self {
        Self {
            up: Linear::new(&format!("{name}.up_proj"), width, hidden),
            down: Linear::new(&format!("{name}.down_proj"), hidden, width),
            activation,
        }
    }

    pub(super) fn forward(&self, parameters: &ByName, x: &[f64]) -> (Vec<f64>, FeedForwardSaved) {
        let hidden = self.up.forward(parameters, x);
        let active: Vec<f64> = hidden.iter().map(|&x| (self.activation.value)(x)).collect();
        let y = self.down.forward(parameters, &active);
        let x = x.to_vec();
        (y, FeedForwardSaved { x, hidden, active })
    }

    pub(super) fn backward(
        &self,
        parameters: &ByName,
        saved: &FeedForwardSaved,
        d_y: &[f64],
        gradients: &mut ByName,
    ) -> Vec<f64> {
        let d_active = self
            .down
            .backward(parameters, &saved.active, d_y, gradients);
        let slopes = saved.hidden.iter().map(|&x| (self.activation.slope)(x));
        let d_hidden: Vec<f64> = d_active.iter().zip(slopes).map(|(d, s)| d * s).collect();
        self.up.backward(parameters, &saved.x, &d_hidden, gradients)
    }
}
