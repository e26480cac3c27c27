// The viewer of attention maps. `encode.rs` writes the data that is read here. Text is only ever set as text.
(() => {
"use strict";

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

// -- Elements --

function make(tag, parent, properties = {}) {
    const element = document.createElement(tag);
    const { data, ...rest } = properties;
    Object.assign(element, rest);
    Object.assign(element.dataset, data ?? {});
    if (parent) parent.append(element);
    return element;
}

function choice(parent, name, options, change) {
    const label = make("label", parent, { textContent: name });
    const select = make("select", label, { name: name.toLowerCase() });
    select.addEventListener("change", () => change(select.value));
    fill(select, options);
    return { label, select };
}

function fill(select, options) {
    select.replaceChildren();
    for (const [value, text] of options) make("option", select, { value, textContent: text });
}

function check(parent, name, text, change) {
    const label = make("label", parent);
    const box = make("input", label, { type: "checkbox", name });
    label.append(text);
    box.addEventListener("change", () => change(box.checked));
    return { label, box };
}

// -- The viewer --

class Viewer {
    constructor(root) {
        const data = JSON.parse(root.querySelector("script").textContent);
        this.root = root;
        this.colours = new Colours(data);
        this.maps = data.maps.map(map => new AttentionMap(map, data.texts));
        this.state = { layer: 0, head: 0, sequence: 0, scale: "query", zeros: false, blocks: false };
        this.pointed = null;
        this.pinned = null;
        if (this.maps.length === 0) {
            make("p", root, { textContent: "There are no attention maps." });
            return;
        }
        this.buildOverview();
        this.buildControls();
        const views = make("div", root, { className: "views" });
        this.matrix = new Matrix(this, make("div", views));
        this.buildSide(make("div", views, { className: "side" }));
        this.choose({});
        dark.addEventListener("change", () => this.draw());
    }

    get map() {
        return this.maps[this.state.layer];
    }

    get weights() {
        return this.map.weights(this.state.sequence, this.state.head);
    }

    /** Whether there is anything to look at. */
    get any() {
        const { batch, heads, queries, keys } = this.map;
        return batch * heads * queries * keys > 0;
    }

    buildOverview() {
        const part = make("div", this.root);
        make("h3", part, { textContent: "Mean entropy of each head, in bits" });
        const table = make("table", make("div", part, { className: "scrolls" }), { className: "overview" });
        const heads = this.maps.reduce((most, map) => Math.max(most, map.heads), 0);
        const top = make("tr", make("thead", table));
        make("td", top);
        for (let head = 0; head < heads; head++) make("th", top, { textContent: "head " + head, scope: "col" });
        const body = make("tbody", table);
        this.cells = this.maps.map((map, layer) => {
            const row = make("tr", body);
            make("th", row, { textContent: map.name, scope: "row" });
            const cells = map.entropy.map((bits, head) => this.cell(make("td", row), layer, head, bits));
            for (let head = map.heads; head < heads; head++) make("td", row);
            cells.push(this.cell(make("td", row), layer, MEAN, null));
            return cells;
        });
        make("p", part, {
            className: "note",
            textContent: "0: every query looks at one key. log₂ n: it looks at n keys alike; the colour is the share of log₂ of all keys.",
        });
    }

    cell(parent, layer, head, bits) {
        const text = bits === null ? "mean" : Number.isNaN(bits) ? "NaN" : bits.toFixed(2);
        const name = this.maps[layer].name;
        const what = bits === null ? "mean of heads" : `head ${head}: mean entropy ${text} bits`;
        const button = make("button", parent, { type: "button", textContent: text, data: { layer, head } });
        button.setAttribute("aria-label", `${name}, ${what}`);
        button.addEventListener("click", () => this.choose({ layer, head }));
        return { button, bits };
    }

    buildControls() {
        const part = make("div", this.root, { className: "controls" });
        const layers = this.maps.map((map, index) => [index, map.name]);
        this.layers = choice(part, "Layer", layers, value => this.choose({ layer: Number(value) })).select;
        this.heads = choice(part, "Head", [], value => this.choose({ head: Number(value) })).select;
        this.sequences = choice(part, "Sequence", [], value => this.choose({ sequence: Number(value) }));
        const scales = [
            ["query", "0 to the largest of each query"],
            ["head", "0 to the largest of the head"],
            ["one", "0 to 1"],
        ];
        choice(part, "Colours", scales, scale => this.choose({ scale }));
        check(part, "zeros", "exact zeros", zeros => this.choose({ zeros }));
        this.blocks = check(part, "blocks", "blocks of the mask", blocks => this.choose({ blocks }));
    }

    buildSide(side) {
        this.details = make("div", side, { className: "details" });
        this.details.setAttribute("role", "status");
        const panel = (name, which) => {
            const part = make("div", side);
            make("h3", part, { textContent: name });
            return new Tokens(this, part, which);
        };
        this.tokens = {
            queries: panel("Queries: point at one to see what it looks at", "queries"),
            keys: panel("Keys: point at one to see what looks at it", "keys"),
        };
    }

    /** Changes what is shown. */
    choose(change) {
        const { layer, sequence } = this.state;
        Object.assign(this.state, change);
        const { state, map } = this;
        if (state.head >= map.heads) state.head = MEAN;
        if (state.sequence >= map.batch) state.sequence = 0;
        if (state.layer !== layer || state.sequence !== sequence || !this.root.dataset.showsLayer) {
            this.pinned = null;
            this.renew();
        }
        Object.assign(this.root.dataset, { showsLayer: state.layer, showsHead: state.head, showsSequence: state.sequence });
        this.layers.value = state.layer;
        this.heads.value = state.head;
        this.sequences.select.value = state.sequence;
        this.pointed = this.pinned;
        this.draw();
    }

    /** Another layer has other heads, queries and keys. */
    renew() {
        const { map, state } = this;
        const heads = map.entropy.map((_, head) => [head, "head " + head]);
        fill(this.heads, [...heads, [MEAN, "mean of heads"]]);
        fill(this.sequences.select, Array.from({ length: map.batch }, (_, i) => [i, i]));
        this.sequences.label.hidden = map.batch < 2;
        this.blocks.label.hidden = !map.blocks;
        const count = { queries: map.queries, keys: map.keys };
        for (const side of ["queries", "keys"]) {
            const labels = map.batch === 0 ? [] : Array.from({ length: count[side] }, (_, i) => map.label(side, state.sequence, i));
            this.tokens[side].fill(labels);
        }
    }

    draw() {
        const { map, state } = this;
        const most = Math.log2(Math.max(2, map.keys));
        this.cells.forEach((cells, layer) => cells.forEach(({ button, bits }, index) => {
            const head = index < cells.length - 1 ? index : MEAN;
            button.setAttribute("aria-pressed", String(layer === state.layer && head === state.head));
            const most = Math.log2(Math.max(2, this.maps[layer].keys));
            paint(button, bits === null ? null : this.colours.of(bits / most));
        }));
        this.most = this.any ? largest(this.weights, map.queries, map.keys, state.scale) : [];
        this.matrix.draw();
        this.point(this.pointed);
    }

    /** The weight of a query at a key. */
    weight(query, key) {
        return this.weights[query * this.map.keys + key];
    }

    colour(query, key) {
        return this.colours.of(this.colours.share(this.weight(query, key), this.most[query]));
    }

    /** Shows what is looked at: `{ side, index }`, or nothing. */
    point(pointed) {
        this.pointed = pointed;
        for (const side of ["queries", "keys"]) this.tokens[side].show(pointed);
        this.matrix.mark(pointed);
        this.describe(pointed);
    }

    /** The same, and it stays until it is asked for again. */
    pin(pointed) {
        const same = this.pinned && this.pinned.side === pointed.side && this.pinned.index === pointed.index;
        this.pinned = same ? null : pointed;
        this.point(this.pinned);
    }

    /** The weights of what is pointed at, with the indices of the other side. */
    line({ side, index }) {
        const { map } = this;
        const count = side === "queries" ? map.keys : map.queries;
        return Array.from({ length: count }, (_, other) =>
            side === "queries" ? this.weight(index, other) : this.weight(other, index));
    }

    describe(pointed) {
        this.details.replaceChildren();
        const { map, state } = this;
        if (!pointed || !this.any) {
            const text = this.any
                ? `${map.name}: ${map.queries} queries, ${map.keys} keys. Point at a query, a key or the matrix; click keeps it.`
                : `${map.name} has no weights: ${map.batch} sequences, ${map.heads} heads, ${map.queries} queries, ${map.keys} keys.`;
            make("p", this.details, { textContent: text });
            return;
        }
        const { side, index } = pointed;
        const line = this.line(pointed);
        const sum = line.reduce((a, b) => a + b, 0);
        const name = `${index} “${map.label(side, state.sequence, index)}”`;
        const text = side === "queries"
            ? `Query ${name}: sum ${show(sum)}, entropy ${entropy(line).toFixed(2)} bits. It looks at`
            : `Key ${name}: sum ${show(sum)}. It is looked at by`;
        make("p", this.details, { textContent: text });
        this.list(side === "queries" ? "keys" : "queries", line);
    }

    /** The eight largest weights. What is not finite comes first. */
    list(side, line) {
        const rank = weight => Number.isFinite(weight) ? weight : Infinity;
        const order = line.map((_, i) => i).filter(i => line[i] !== 0);
        order.sort((a, b) => rank(line[b]) === rank(line[a]) ? a - b : rank(line[b]) - rank(line[a]));
        const most = Math.max(...order.map(i => line[i]).filter(Number.isFinite), 1e-30);
        const list = make("ol", this.details);
        for (const index of order.slice(0, 8)) {
            const item = make("li", list, { data: { index } });
            const label = this.map.label(side, this.state.sequence, index);
            make("span", item, { textContent: `${index} ${label}`, title: label });
            const bar = make("span", make("span", item), { className: "bar" });
            bar.style.display = "block";
            bar.style.width = `${Math.min(100, Math.max(0, 100 * line[index] / most)) || 0}%`;
            make("span", item, { textContent: show(line[index]) });
        }
        if (order.length > 8) make("p", this.details, { className: "note", textContent: `and ${order.length - 8} more` });
    }
}

/** The queries or the keys, as text. */
class Tokens {
    constructor(viewer, part, side) {
        this.viewer = viewer;
        this.side = side;
        this.box = make("div", part, { className: "tokens", data: { side } });
        this.box.setAttribute("role", "group");
        this.box.setAttribute("aria-label", side);
        const index = event => event.target.dataset.index;
        const on = (kind, act) => this.box.addEventListener(kind, event => {
            if (index(event) !== undefined) act({ side, index: Number(index(event)) }, event);
        });
        on("pointerover", pointed => viewer.point(pointed));
        on("focusin", pointed => viewer.point(pointed));
        on("click", pointed => viewer.pin(pointed));
        on("keydown", (pointed, event) => this.move(pointed.index, event));
        this.box.addEventListener("pointerleave", () => viewer.point(viewer.pinned));
    }

    fill(labels) {
        this.buttons = labels.map((label, index) => {
            const button = make("button", null, { type: "button", textContent: label, title: label, data: { index } });
            button.tabIndex = index === 0 ? 0 : -1;
            return button;
        });
        this.labels = labels;
        this.box.replaceChildren(...this.buttons);
    }

    /** The arrows go from token to token: one of them alone is reached by the tabulator. */
    move(from, event) {
        const last = this.buttons.length - 1;
        const to = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: last }[event.key];
        if (to === undefined || to < 0 || to > last) return;
        event.preventDefault();
        this.buttons[from].tabIndex = -1;
        this.buttons[to].tabIndex = 0;
        this.buttons[to].focus();
    }

    show(pointed) {
        const other = pointed && pointed.side !== this.side;
        this.buttons.forEach((button, index) => {
            const chosen = Boolean(pointed) && !other && pointed.index === index;
            button.classList.toggle("chosen", chosen);
            if (!other) {
                paint(button, null);
                delete button.dataset.weight;
                button.title = this.labels[index];
                return;
            }
            const [query, key] = this.side === "keys" ? [pointed.index, index] : [index, pointed.index];
            const weight = show(this.viewer.weight(query, key));
            paint(button, this.viewer.colour(query, key));
            button.dataset.weight = weight;
            button.title = `${this.labels[index]}: ${weight}`;
        });
    }
}

/** All weights of a head: queries from top to bottom, keys from left to right. */
class Matrix {
    constructor(viewer, part) {
        this.viewer = viewer;
        this.title = make("h3", part);
        this.box = make("div", part, { className: "matrix" });
        this.canvas = make("canvas", this.box, { tabIndex: 0 });
        this.canvas.setAttribute("role", "img");
        this.legend = make("div", part, { className: "legend" });
        this.tip = make("div", part, { className: "tip", hidden: true });
        this.at = null;
        this.canvas.addEventListener("pointermove", event => this.hover(event));
        this.canvas.addEventListener("pointerleave", () => this.leave());
        this.canvas.addEventListener("blur", () => this.leave());
        this.canvas.addEventListener("keydown", event => this.move(event));
        this.canvas.addEventListener("click", () => {
            if (this.at) viewer.pin({ side: "queries", index: this.at.query });
        });
    }

    draw() {
        const { viewer } = this;
        const { map, state } = viewer;
        const head = state.head === MEAN ? "mean of heads" : "head " + state.head;
        this.title.textContent = `${map.name}, ${head}: queries down, keys across`;
        this.canvas.setAttribute("aria-label", `${map.queries} by ${map.keys} weights of ${map.name}, ${head}; the arrows read them`);
        this.box.hidden = !viewer.any;
        this.drawLegend();
        if (!viewer.any) return;
        this.measure();
        this.picture = this.drawWeights();
        this.paint();
    }

    /** How large a cell is, and how much room the labels take. */
    measure() {
        const { map } = this.viewer;
        const room = 680 / Math.max(map.queries, map.keys);
        this.cell = room >= 1 ? Math.min(26, Math.floor(room)) : 1;
        this.font = Math.min(12, this.cell - 1);
        this.labelled = this.font >= 8;
        const context = this.canvas.getContext("2d");
        context.font = this.fontOf();
        const widest = (side, count) => {
            let width = 0;
            for (let i = 0; i < count; i++) width = Math.max(width, context.measureText(this.label(side, i)).width);
            return Math.ceil(width) + 6;
        };
        this.left = this.labelled ? widest("queries", map.queries) : 34;
        this.top = this.labelled ? widest("keys", map.keys) : 18;
    }

    fontOf() {
        return `${this.labelled ? this.font : 11}px "DejaVu Sans Mono", ui-monospace, monospace`;
    }

    label(side, index) {
        const text = this.viewer.map.label(side, this.viewer.state.sequence, index);
        const characters = Array.from(text);
        return characters.length > 12 ? characters.slice(0, 11).join("") + "…" : text;
    }

    /** One pixel for a weight. */
    drawWeights() {
        const { viewer } = this;
        const { map, state, weights } = viewer;
        const picture = document.createElement("canvas");
        picture.width = map.keys;
        picture.height = map.queries;
        const context = picture.getContext("2d");
        const image = context.createImageData(map.keys, map.queries);
        const masked = rgbOf("--masked");
        for (let i = 0; i < weights.length; i++) {
            const most = viewer.most[Math.floor(i / map.keys)];
            const zero = state.zeros && weights[i] === 0;
            const rgb = zero ? masked : viewer.colours.of(viewer.colours.share(weights[i], most));
            image.data.set(rgb, 4 * i);
            image.data[4 * i + 3] = 255;
        }
        context.putImageData(image, 0, 0);
        return picture;
    }

    /** The picture with all that stands around and above it. */
    paint() {
        const { map } = this.viewer;
        const [width, height] = [map.keys * this.cell, map.queries * this.cell];
        const ratio = window.devicePixelRatio || 1;
        this.canvas.width = (this.left + width + 1) * ratio;
        this.canvas.height = (this.top + height + 1) * ratio;
        this.canvas.style.width = `${this.left + width + 1}px`;
        this.canvas.style.height = `${this.top + height + 1}px`;
        const context = this.canvas.getContext("2d");
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.fillStyle = named("--paper");
        context.fillRect(0, 0, this.left + width + 1, this.top + height + 1);
        this.drawLabels(context);
        context.translate(this.left, this.top);
        context.imageSmoothingEnabled = false;
        context.drawImage(this.picture, 0, 0, width, height);
        context.strokeStyle = named("--line");
        context.lineWidth = 1;
        context.strokeRect(-0.5, -0.5, width + 1, height + 1);
        if (this.viewer.state.blocks) this.drawBlocks(context, width, height);
        this.drawMarks(context, width, height);
    }

    drawLabels(context) {
        const { map } = this.viewer;
        context.font = this.fontOf();
        context.fillStyle = named("--faint");
        context.textBaseline = "middle";
        const every = this.labelled ? 1 : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(n => n * this.cell >= 40) ?? 2000;
        context.textAlign = "right";
        for (let i = 0; i < map.queries; i += every) {
            const text = this.labelled ? this.label("queries", i) : String(i);
            context.fillText(text, this.left - 4, this.top + (i + 0.5) * this.cell);
        }
        for (let i = 0; i < map.keys; i += every) {
            context.save();
            context.translate(this.left + (i + 0.5) * this.cell, this.top - 4);
            const text = this.labelled ? this.label("keys", i) : String(i);
            if (this.labelled && this.top > 1.6 * this.cell) context.rotate(-Math.PI / 2);
            else context.textAlign = "center";
            if (context.textAlign === "center") context.translate(0, -4);
            else context.textAlign = "left";
            context.fillText(text, 0, 0);
            context.restore();
        }
    }

    /** What the kernels know of the mask before they look. */
    drawBlocks(context, width, height) {
        const { map, state } = this.viewer;
        const plan = map.plan(state.head);
        if (plan === null) return;
        const { rows, columns, queries, keys } = map.blocks;
        const colours = { f: named("--full"), p: named("--partial"), e: named("--empty") };
        for (let row = 0; row < rows; row++) {
            for (let column = 0; column < columns; column++) {
                const kind = plan[row * columns + column];
                const [x, y] = [column * keys * this.cell, row * queries * this.cell];
                const w = Math.min(keys * this.cell, width - x);
                const h = Math.min(queries * this.cell, height - y);
                if (w <= 0 || h <= 0) continue;
                context.strokeStyle = colours[kind];
                context.lineWidth = kind === "e" ? 1 : 2;
                context.setLineDash(kind === "p" ? [6, 4] : []);
                context.strokeRect(x + 1.5, y + 1.5, Math.max(0, w - 3), Math.max(0, h - 3));
                if (kind === "e") line(context, x + 1.5, y + h - 1.5, x + w - 1.5, y + 1.5);
            }
        }
        context.setLineDash([]);
    }

    /** The row or column that is pointed at, and the weight. */
    drawMarks(context, width, height) {
        const pointed = this.viewer.pointed;
        context.strokeStyle = named("--accent");
        context.lineWidth = 1.5;
        if (pointed && pointed.side === "queries") context.strokeRect(0, pointed.index * this.cell, width, this.cell);
        if (pointed && pointed.side === "keys") context.strokeRect(pointed.index * this.cell, 0, this.cell, height);
        if (!this.at) return;
        context.lineWidth = 2.5;
        context.strokeRect(this.at.key * this.cell - 0.5, this.at.query * this.cell - 0.5, this.cell + 1, this.cell + 1);
    }

    mark() {
        if (this.viewer.any && this.picture) this.paint();
    }

    drawLegend() {
        const { viewer } = this;
        const { state, map } = viewer;
        this.legend.replaceChildren();
        const most = { one: "1", head: "the largest of the head", query: "the largest of each query" }[state.scale];
        const ramp = make("span", this.legend);
        ramp.append("0");
        const bar = make("span", ramp, { className: "ramp" });
        const stops = Array.from({ length: 17 }, (_, i) => css(viewer.colours.of(i / 16)));
        bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
        ramp.append(most);
        const swatch = (colour, text) => {
            const item = make("span", this.legend);
            make("span", item, { className: "swatch" }).style.background = colour;
            item.append(text);
            return item.firstChild;
        };
        if (state.zeros) swatch(named("--masked"), "exactly 0");
        if (viewer.any && viewer.weights.some(weight => !Number.isFinite(weight))) {
            swatch(css(viewer.colours.notFinite), "NaN or infinite");
        }
        if (!state.blocks || !map.blocks) return;
        if (map.plan(state.head) === null) {
            make("span", this.legend, { textContent: "every head has blocks of its own: choose one" });
            return;
        }
        for (const kind of ["f", "p", "e"]) {
            const item = swatch("transparent", `${BLOCK_NAMES[kind]} block`);
            item.style.border = `2px ${kind === "p" ? "dashed" : "solid"} ${named("--" + BLOCK_NAMES[kind])}`;
            const slash = `linear-gradient(to top left, transparent 44%, ${named("--empty")} 46% 54%, transparent 56%)`;
            if (kind === "e") item.style.background = slash;
        }
    }

    hover(event) {
        const { map } = this.viewer;
        const query = Math.floor((event.offsetY - this.top) / this.cell);
        const key = Math.floor((event.offsetX - this.left) / this.cell);
        if (query < 0 || key < 0 || query >= map.queries || key >= map.keys) return this.leave();
        this.read(query, key, event.clientX, event.clientY);
    }

    move(event) {
        const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
        const step = steps[event.key];
        if (!step || !this.viewer.any) return;
        event.preventDefault();
        const { map } = this.viewer;
        const { query, key } = this.at ?? { query: -step[0], key: -step[1] };
        const within = (value, count) => Math.min(count - 1, Math.max(0, value));
        const [q, k] = [within(query + step[0], map.queries), within(key + step[1], map.keys)];
        const place = this.canvas.getBoundingClientRect();
        this.read(q, k, place.left + this.left + (k + 1) * this.cell, place.top + this.top + (q + 1) * this.cell);
    }

    /** Says what a query thinks of a key. */
    read(query, key, x, y) {
        const { map, state } = this.viewer;
        this.at = { query, key };
        const name = (side, index) => `${index} “${map.label(side, state.sequence, index)}”`;
        const weight = show(this.viewer.weight(query, key));
        this.tip.textContent = `${name("queries", query)} → ${name("keys", key)}: ${weight}`;
        Object.assign(this.tip.dataset, { query, key, weight });
        this.tip.hidden = false;
        const room = [window.innerWidth - this.tip.offsetWidth - 4, window.innerHeight - this.tip.offsetHeight - 4];
        this.tip.style.left = `${Math.min(x + 14, room[0])}px`;
        this.tip.style.top = `${Math.min(y + 14, room[1])}px`;
        this.viewer.point({ side: "queries", index: query });
    }

    leave() {
        if (!this.at) return;
        this.at = null;
        this.tip.hidden = true;
        this.viewer.point(this.viewer.pinned);
    }
}

function line(context, x, y, toX, toY) {
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(toX, toY);
    context.stroke();
}

for (const root of document.querySelectorAll(".attn-viewer")) new Viewer(root);
})();
