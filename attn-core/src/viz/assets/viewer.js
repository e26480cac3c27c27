// The viewer: what is chosen, and the parts of the page that show it. Text is only ever set as text.

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

for (const root of document.querySelectorAll(".attn-viewer")) new Viewer(root);
