"""After engine.py: quoted mutants, NOT_SIMULATED names, docs."""
import ast, json, re, sys, pathlib, io, tokenize, importlib
ROOT = pathlib.Path(sys.argv[1]).resolve()
edits = json.load(open("/tmp/rename/edits.json")); before = json.load(open("/tmp/rename/before.json")); applied = json.load(open("/tmp/rename/applied.json"))
def filemap(f):
    d = {}
    for a, b, n in edits.get(f, []):
        d.setdefault(before[f][a:b], set()).add(n)
    return d
def swap(text, d, uncertain):
    out = []; last = 0
    for m in re.finditer(r"[A-Za-z_]\w*", text):
        ns = d.get(m.group())
        if ns:
            if len(ns) > 1: uncertain.append((m.group(), ns)); continue
            out.append(text[last:m.start()] + next(iter(ns))); last = m.end()
    return "".join(out) + text[last:]
report = []
mutants = {}
for path in sorted((ROOT / "tests/mutants").rglob("of_*.py")):
    src = path.read_text(); tree = ast.parse(src)
    lines = src.splitlines(keepends=True); offs = [0]
    for l in lines: offs.append(offs[-1] + len(l))
    def at(line, col): return offs[line-1] + len(lines[line-1].encode()[:col].decode())
    reps = []
    def handle(f, old, new):
        if f not in before: return
        src_b = before[f]; i = src_b.find(old.value)
        if i < 0 or src_b.count(old.value) != 1: report.append(f"MUTANT? {path.name}:{old.lineno} {f}"); return
        es = [(a, b, n) for a, b, n in edits[f] if i <= a and b <= i + len(old.value)]
        if not es and new is None: return
        s = old.value; local = {}
        for a, b, n in sorted(es, reverse=True):
            local.setdefault(src_b[a:b], set()).add(n); s = s[:a-i] + n + s[b-i:]
        reps.append((old, s))
        if new is not None and isinstance(new, ast.Constant):
            fm = filemap(f)
            d = {}
            for k, v in fm.items():
                # names that are in `old` but were not edited there are kept
                if k in local: d[k] = local[k]
                elif not re.search(rf"\b{k}\b", old.value) and len(v) == 1: 
                    # only when every use in the file was renamed
                    if len(re.findall(rf"\b{re.escape(k)}\b", src_b)) <= sum(1 for a, b, n in edits[f] if src_b[a:b] == k) + 1: d[k] = v
            unc = []
            t = swap(new.value, d, unc)
            if unc: report.append(f"UNCERTAIN {path.name}:{new.lineno} {unc}")
            reps.append((new, t))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str) and node.args[0].value.endswith(".py"):
            f = node.args[0].value
            for a in node.args[1:]:
                if isinstance(a, ast.Tuple) and len(a.elts) == 2 and all(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in a.elts): handle(f, *a.elts)
            if len(node.args) >= 3 and all(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in node.args[1:3]): handle(f, node.args[1], node.args[2])
    for node, val in sorted(reps, key=lambda r: (-r[0].lineno, -r[0].col_offset)):
        if node.value == val: continue
        a, b = at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)
        src = src[:a] + repr(val) + src[b:]
    path.write_text(src)
# NOT_SIMULATED-like names "module.Class.method" and "Class.method"
short = {}
for c, a, n in applied["rename"]:
    mod, _, cls = c.rpartition("."); short[f"{mod.rpartition('.')[2]}.{cls}.{a}"] = (cls, n)
globs = applied["glob"]; clsnew = {k: v for k, v in globs.items()}
for f in ("tests/sim/test_product.py",):
    p = ROOT / f; s = p.read_text()
    for full, new in globs.items():
        mod, _, old = full.rpartition("."); m = mod.rpartition(".")[2]
        if not mod.startswith(("producer", "consumer", "coordinator", "schemas")): continue
        s = re.sub(rf"(?<![\w])((?:producer\.)?{m}\.){re.escape(old)}(?=[\s\".])", lambda x: x.group(1) + new, s)
    done = {}
    for c, a, n in applied["rename"]:
        mod, _, cls = c.rpartition("."); m = mod.rpartition(".")[2]; cn = globs.get(c, cls)
        s = re.sub(rf"(?<![\w])((?:producer\.)?{m}\.{cn}\.){re.escape(a)}(?=[\s\"])", lambda x: x.group(1) + n, s)
    p.write_text(s)
# docs: steps and backticked names
caps = {}
for full, new in globs.items():
    old = full.rpartition(".")[2]
    if re.match(r"_?[A-Z][a-z]+[A-Z]", old): caps.setdefault(old, set()).add(new)
caps = {k: v for k, v in caps.items() if len(v) == 1}
funcs = {}
for full, new in globs.items():
    funcs.setdefault(full.rpartition(".")[2], set()).add(new)
meth = {}
for c, a, n in applied["rename"]: meth.setdefault((c.rpartition(".")[2], a), set()).add(n)
bypath = {}
for full, new in globs.items():
    mod, _, old = full.rpartition("."); bypath.setdefault(mod.replace(".", "/") + ".py", {})[old] = new
for c, a, n in applied["rename"]:
    mod, _, cls = c.rpartition("."); bypath.setdefault(mod.replace(".", "/") + ".py", {})[f"{cls}.{a}"] = f"{globs.get(c, cls)}.{n}"
for p in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
    if p.name == "CHANGELOG.md": continue
    s = o = p.read_text()
    def step(m):
        f, name = m.group(1), m.group(2)
        new = bypath.get(f, {}).get(name)
        if new is None and "." in name:
            cls, _, a = name.rpartition("."); g = globs.get(f.removesuffix(".py").replace("/", ".") + "." + cls)
            if g: new = f"{g}.{a}"
        return f"`{f}`" + m.group(3) + f"`{new or name}`"
    s = re.sub(r"`([\w/]+\.py)`(\s*\|\s*|: |, )`([\w.]+)`", lambda m: step(re.match(r"()", "") or m) if False else (lambda f, sep, name: f"`{f}`{sep}`{bypath.get(f, {}).get(name) or (globs.get(f[:-3].replace('/', '.') + '.' + name.rpartition('.')[0], '') + '.' + name.rpartition('.')[2] if '.' in name and globs.get(f[:-3].replace('/', '.') + '.' + name.rpartition('.')[0]) else name)}`")(m.group(1), m.group(2), m.group(3)), s)
    s = re.sub(r"`(\w+)\.(\w+)(\(\))?`", lambda m: "`" + next(iter(caps.get(m.group(1), {m.group(1)}))) + "." + (next(iter(meth[m.group(1), m.group(2)])) if len(meth.get((m.group(1), m.group(2)), ())) == 1 else m.group(2)) + (m.group(3) or "") + "`", s)
    s = re.sub(r"`(_?[A-Z]\w+)`", lambda m: "`" + next(iter(caps.get(m.group(1), {m.group(1)}))) + "`", s)
    if s != o: p.write_text(s)
print("\n".join(report))
