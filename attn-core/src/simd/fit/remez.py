"""Minimax coefficients of attn-core/src/simd/tables.rs.  Run: python3 remez.py  (needs mpmath)

remez(f, w, a, b, n): the polynomial p of degree n on [a, b] that minimises max |w(x) (p(x) - f(x))|,
by Remez exchange in 50 digits, then its coefficients are rounded to the target precision.
"""
import mpmath as mp, struct, sys
mp.mp.dps = 50

def solve(xs, f, w, n):
    A = mp.matrix(n + 2, n + 2); b = mp.matrix(n + 2, 1)
    for i, x in enumerate(xs):
        p = mp.mpf(1)
        for j in range(n + 1):
            A[i, j] = p; p *= x
        A[i, n + 1] = (-1) ** i / w(x)
        b[i] = f(x)
    s = mp.lu_solve(A, b)
    return [s[j] for j in range(n + 1)], abs(s[n + 1])

def horner(c, x):
    r = mp.mpf(0)
    for k in reversed(c): r = r * x + k
    return r

def remez(f, w, a, b, n, rounds=8, grid=None):
    a, b = mp.mpf(a), mp.mpf(b)
    grid = grid or 24 * (n + 2)
    m = n + 2
    xs = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * m)) for i in range(m)]
    pts = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * i / grid) for i in range(grid + 1)]
    fv = [f(x) for x in pts]; wv = [w(x) for x in pts]
    for _ in range(rounds):
        c, e = solve(xs, f, w, n)
        err = [wv[i] * (horner(c, x) - fv[i]) for i, x in enumerate(pts)]
        # one extremum per run of equal sign
        ext = []; i = 0
        while i < len(pts):
            j = i; best = i
            while j < len(pts) and (err[j] > 0) == (err[i] > 0):
                if abs(err[j]) > abs(err[best]): best = j
                j += 1
            ext.append(best); i = j
        while len(ext) > m:
            if abs(err[ext[0]]) < abs(err[ext[-1]]): ext.pop(0)
            else: ext.pop()
        worst = max(abs(v) for v in err)
        if len(ext) < m: break
        xs = [pts[i] for i in ext]
        if worst < e * mp.mpf('1.01'): break
    return c, worst

def literal(v, bits):
    """The shortest decimal that reads back as `v` rounded to f32 or f64."""
    v = float(v)
    if bits == 64: return repr(v)
    v = struct.unpack("f", struct.pack("f", v))[0]
    return next(t for t in (f"{v:.{k}g}" for k in range(1, 12)) if struct.unpack("f", struct.pack("f", float(t)))[0] == v)

def show(name, bits, result):
    c, worst = result
    print(f"// {name} f{bits}: degree {len(c)-1}, weighted error 2^{float(mp.log(worst, 2)):.1f}")
    print(", ".join(literal(k, bits) for k in c))
    sys.stdout.flush()

tiny = mp.mpf(10)**-30
# exp(r) = 1 + r + r^2 P(r), |r| <= ln2/2; relative to exp
half = mp.log(2) / 2 * mp.mpf('1.0005')
fe = lambda r: (mp.expm1(r) - r) / r**2 if abs(r) > 1e-12 else mp.mpf(1)/2 + r/6
we = lambda r: r**2 / mp.exp(r) + tiny
show("EXP", 32, remez(fe, we, -half, half, 4))
show("EXP", 64, remez(fe, we, -half, half, 9))
# ln((1+s)/(1-s)) = 2s + s w R(w), w = s^2, |s| <= 3 - 2 sqrt 2; relative
def fl(w):
    if w < 1e-14: return mp.mpf(2)/3 + 2*w/5
    s = mp.sqrt(w); return (2*mp.atanh(s)/s - 2) / w
wl = lambda w: w / 2 + tiny
b = (3 - 2*mp.sqrt(2))**2 * mp.mpf('1.0001')
show("LN", 32, remez(fl, wl, 0, b, 2))
show("LN", 64, remez(fl, wl, 0, b, 6))
# erf(x) = x + x P(z), z = x^2, |x| <= 1; relative
def fx(z):
    if z < 1e-24: return 2/mp.sqrt(mp.pi) - 1 - 2/mp.sqrt(mp.pi)*z/3
    x = mp.sqrt(z); return mp.erf(x) / x - 1
def wx(z):
    if z < 1e-30: return mp.sqrt(mp.pi)/2
    x = mp.sqrt(z); return x / mp.erf(x)
show("ERF_SMALL", 32, remez(fx, wx, 0, 1, 6))
show("ERF_SMALL", 64, remez(fx, wx, 0, 1, 12))
# erf(x) = 1 - exp(P(u)), u = x - 1; weighted by erfc, so absolute in erf
lg = lambda u: mp.log(mp.erfc(u + 1))
wg = lambda u: mp.erfc(u + 1) + mp.mpf(10)**-12
wg64 = lambda u: mp.erfc(u + 1) + mp.mpf(10)**-18
for n in (5, 6, 7): show("ERF_LARGE", 32, remez(lg, wg, 0, 3, n, grid=40*(n+2)))
for n in (15, 16, 17): show("ERF_LARGE", 64, remez(lg, wg64, 0, 5, n, grid=40*(n+2)))
