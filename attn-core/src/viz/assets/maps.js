// The maps in the page: `encode.rs` writes the data that is read here.

const MEAN = -1;
/** A weight that was rounded to nothing, and was something. */
const TINY = 1e-300;
const BLOCK_NAMES = { f: "full", p: "partial", e: "empty" };
const dark = matchMedia("(prefers-color-scheme: dark)");

// -- Numbers --

function bytes(base64) {
    const text = atob(base64);
    const array = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) array[i] = text.charCodeAt(i);
    return array;
}

/** A map as it is worked with: its weights are decoded when they are first looked at. */
class AttentionMap {
    constructor(data, texts) {
        this.name = data.name;
        [this.batch, this.heads, this.queries, this.keys] = data.shape;
        this.entropy = data.entropy.map(bits => bits === null ? NaN : bits);
        this.blocks = data.blocks;
        this.data = data;
        this.texts = texts;
        this.decoded = new Map();
    }

    label(side, sequence, index) {
        const labels = this.texts[this.data[side][sequence]];
        return labels && index < labels.length ? labels[index] : String(index);
    }

    open() {
        if (this.codes) return;
        const codes = bytes(this.data.codes);
        this.codes = this.data.bits === 8 ? codes : new Uint16Array(codes.buffer);
        this.low = new Float32Array(bytes(this.data.low).buffer);
        this.step = new Float32Array(bytes(this.data.step).buffer);
        this.top = 2 ** this.data.bits - 4;
    }

    /** The weights of a head, or the mean of all of them, query by query. */
    weights(sequence, head) {
        const key = sequence + "/" + head;
        if (!this.decoded.has(key)) {
            this.open();
            this.decoded.set(key, head === MEAN ? this.mean(sequence) : this.decode(sequence, head));
        }
        return this.decoded.get(key);
    }

    decode(sequence, head) {
        const size = this.queries * this.keys;
        const first = sequence * this.heads + head;
        const special = [NaN, Infinity, -Infinity];
        const weights = new Float64Array(size);
        for (let i = 0; i < size; i++) {
            const code = this.codes[first * size + i];
            const row = first * this.queries + Math.floor(i / this.keys);
            if (code > this.top) weights[i] = special[code - this.top - 1];
            else if (code > 0) weights[i] = this.low[row] + (code - 1) * this.step[row] || TINY;
        }
        return weights;
    }

    mean(sequence) {
        const mean = new Float64Array(this.queries * this.keys);
        for (let head = 0; head < this.heads; head++) {
            const weights = this.decode(sequence, head);
            for (let i = 0; i < mean.length; i++) mean[i] += weights[i] / this.heads;
        }
        return mean;
    }

    /** The blocks of a head: `null` for a mean of heads that have blocks of their own. */
    plan(head) {
        const blocks = this.blocks;
        if (!blocks || (head === MEAN && blocks.heads > 1)) return null;
        const index = Math.min(Math.max(head, 0), blocks.heads - 1);
        return blocks.plan.slice(index * blocks.rows * blocks.columns);
    }
}

function entropy(row) {
    let sum = 0, bits = 0;
    for (const weight of row) sum += weight;
    if (!Number.isFinite(sum)) return NaN;
    for (const weight of row) if (weight > 0) bits -= weight / sum * Math.log2(weight / sum);
    return Math.max(0, bits);
}

function show(weight) {
    if (weight === 0) return "0";
    if (Number.isNaN(weight)) return "NaN";
    if (!Number.isFinite(weight)) return weight > 0 ? "∞" : "-∞";
    if (Math.abs(weight) < 1e-99) return "≈ 0";
    return Math.abs(weight) < 0.0001 ? weight.toExponential(1) : weight.toFixed(4);
}

/** What a weight is divided by before it gets a colour, for each query. */
function largest(weights, queries, keys, scale) {
    const rows = new Float64Array(queries).fill(scale === "one" ? 1 : 0);
    if (scale === "one") return rows;
    for (let i = 0; i < weights.length; i++) {
        const row = Math.floor(i / keys);
        if (Number.isFinite(weights[i]) && weights[i] > rows[row]) rows[row] = weights[i];
    }
    return scale === "head" ? rows.fill(rows.reduce((a, b) => Math.max(a, b), 0)) : rows;
}

// -- Colours --

class Colours {
    constructor(data) {
        this.scales = { light: bytes(data.light), dark: bytes(data.dark) };
        this.notFinite = data.notFinite;
    }

    of(share) {
        if (!Number.isFinite(share)) return this.notFinite;
        const scale = dark.matches ? this.scales.dark : this.scales.light;
        const at = 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
        return [scale[at], scale[at + 1], scale[at + 2]];
    }

    share(weight, most) {
        if (!Number.isFinite(weight)) return NaN;
        return most > 0 ? weight / most : 0;
    }
}

const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`;

/** Black or white, whichever is farther from the colour: 4.58 to 1 at least, the most that can be had for all. */
function ink(rgb) {
    const [r, g, b] = rgb.map(c => c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

function paint(element, rgb) {
    element.style.background = rgb ? css(rgb) : "";
    element.style.color = rgb ? ink(rgb) : "";
}

const named = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function rgbOf(name) {
    const hex = named(name);
    return [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
}
