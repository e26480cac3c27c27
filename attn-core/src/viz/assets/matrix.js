// The matrix of a head, on a canvas.

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
