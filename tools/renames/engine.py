"""Rename by types: `engine.py ROOT TSV... [--dry]`. Edits files of ROOT in place."""
from __future__ import annotations
import sys, re, io, tokenize, collections, pathlib, json, time, types as pytypes
from mypy import build, nodes as N, types as T, patterns as P
from mypy.options import Options
from mypy.modulefinder import BuildSource
from mypy.subtypes import is_subtype
from mypy.state import state as mstate

ROOT = pathlib.Path(sys.argv[1]).resolve()
DRY = "--dry" in sys.argv
TSVS = [a for a in sys.argv[2:] if not a.startswith("-")]
PK = ("schemas", "producer", "consumer", "coordinator", "rowlock", "deploy", "tools", "tests")
files = sorted(p for k in PK for p in (ROOT / k).rglob("*.py"))
def modname(p):
    m = p.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    return m.removesuffix(".__init__")
opts = Options()
opts.python_version = (3, 11); opts.export_types = True; opts.preserve_asts = True
opts.incremental = False; opts.check_untyped_defs = True; opts.ignore_missing_imports = True
opts.namespace_packages = True; opts.explicit_package_bases = True; opts.mypy_path = [str(ROOT)]
opts.per_module_options = {"pymysqlreplication.*": {"follow_untyped_imports": True}}
opts.show_traceback = True
t0 = time.time()
import os; os.chdir(ROOT)
res = build.build([BuildSource(str(p), modname(p)) for p in files], opts)
print("built", round(time.time() - t0), "s;", len(res.errors), "messages", file=sys.stderr)
types = res.types
OURS = {modname(p): p for p in files}

# --- map
want: dict[tuple[str, str], str] = {}
fields_req = {}
for tsv in TSVS:
    for line in open(tsv):
        f = line.rstrip("\n").split("\t")
        if len(f) == 3 and f[2]:
            m = modname(ROOT / f[0])
            want[m, f[1]] = f[2]

# --- walk
_attrs: dict[type, list[str]] = {}
SKIP = {"node", "info", "type", "unanalyzed_type", "original_def", "analyzed", "names", "def_frame", "type_annotation", "definition", "unanalyzed_items", "original_first_arg", "as_member_expr_", "imports", "type_guard", "type_is", "method_type", "method_types", "fullname", "inferred_type", "inferred_item_type", "inferred_iter_type", "plugin_deps"}
def attrs(cls):
    if cls not in _attrs:
        out = []
        for c in cls.__mro__:
            for k, v in vars(c).items():
                if isinstance(v, pytypes.GetSetDescriptorType) and k not in SKIP and k not in out:
                    out.append(k)
        _attrs[cls] = out
    return _attrs[cls]
def children(v):
    if isinstance(v, (list, tuple)):
        for x in v: yield from children(x)
    elif isinstance(v, N.Node) and not isinstance(v, (N.TypeInfo, N.MypyFile)):
        yield v
def walk(root):
    seen = set(); stack = [root]
    while stack:
        n = stack.pop()
        if id(n) in seen: continue
        seen.add(id(n)); yield n
        for a in attrs(type(n)):
            try: v = getattr(n, a)
            except Exception: continue
            if v is None or isinstance(v, (str, int, bool)): continue
            if a == "analyzed" : continue
            stack.extend(children(v))

infos: dict[str, N.TypeInfo] = {}
trees = {m: res.files[m] for m in OURS if m in res.files}
def nested(names):
    for sym in names.values():
        if isinstance(sym.node, N.TypeInfo) and sym.node.fullname not in infos and sym.node.module_name in OURS:
            infos[sym.node.fullname] = sym.node
            nested(sym.node.names)
for m, t in trees.items(): nested(t.names)
allnodes = {m: list(walk(t)) for m, t in trees.items()}
for m, ns in allnodes.items():
    for n in ns:
        if isinstance(n, N.ClassDef) and n.info: infos.setdefault(n.info.fullname, n.info)
print(len(infos), "classes", sum(map(len, allnodes.values())), "nodes", file=sys.stderr)

# --- groups
parent: dict = {}
def find(x):
    parent.setdefault(x, x)
    while parent[x] != x:
        parent[x] = parent[parent[x]]; x = parent[x]
    return x
def union(a, b): parent[find(a)] = find(b)
def definers(info, name):
    return [c for c in info.mro if name in c.names]
foreign = set()
for info in infos.values():
    for name in info.names:
        me = (info.fullname, name)
        for base in info.mro[1:]:
            if name in base.names:
                if base.module_name in OURS: union(me, (base.fullname, name))
                elif base.fullname not in ("builtins.object",): foreign.add(me)
def wanted_of(i, n):
    return want.get((i.module_name, i.fullname[len(i.module_name) + 1:] + "." + n))
protos = [i for i in infos.values() if i.is_protocol]
def members(p): return {n for b in p.mro if b.is_protocol for n in b.names if not n.startswith("__") or n == "__call__"}
interesting = {q.rsplit(".", 1)[-1] for _, q in want}
nsub = 0
with mstate.strict_optional_set(True):
    for p in protos:
        ms = members(p) - {"__call__"}
        if not ms & interesting: continue
        pi = T.Instance(p, [T.AnyType(T.TypeOfAny.special_form)] * len(p.type_vars))
        for c in infos.values():
            if c is p or c.module_name.startswith("tests") or c.is_protocol and p not in c.mro: continue
            if not all(c.get(n) is not None for n in ms): continue
            try: ok = is_subtype(T.Instance(c, [T.AnyType(T.TypeOfAny.special_form)] * len(c.type_vars)), pi, ignore_pos_arg_names=True)
            except Exception as e: ok = len(ms) > 1
            if not ok: continue
            nsub += 1
            for n in ms:
                for d in definers(c, n)[:1]:
                    if d.module_name not in OURS: foreign.add((p.fullname, n)); continue
                    pd = definers(p, n)[0]
                    w1, w2 = wanted_of(d, n), wanted_of(pd, n)
                    if w1 == w2 and w1 or (not (w1 and w2) and len(ms) > 1):
                        union((d.fullname, n), (pd.fullname, n))
print(nsub, "implementations", file=sys.stderr)
proposals = collections.defaultdict(list)
isproto = {i.fullname for i in protos}
glob: dict[str, str] = {}   # fullname of module-level thing or class → new last part
for (m, q), new in want.items():
    full = f"{m}.{q}"
    owner = full.rpartition(".")[0]
    if owner in infos and full not in infos:
        proposals[find((owner, q.rsplit(".", 1)[-1]))].append(((owner, q.rsplit(".", 1)[-1]), new))
    else:
        glob[full] = new
badgroups = {find(f) for f in foreign if f in parent} | {f for f in foreign}
rename: dict = {}   # (class fullname, attr) → new
members_of = collections.defaultdict(list)
for x in list(parent): members_of[find(x)].append(x)
report = []
for g, props in proposals.items():
    names = collections.Counter(n for _, n in props)
    pr = [n for (k, n) in props if k[0] in isproto]
    new = pr[0] if pr else names.most_common(1)[0][0]
    group = members_of.get(g) or [g]
    if g in badgroups or any(x in foreign for x in group):
        report.append(f"FOREIGN {props[0]}"); continue
    if len(names) > 1: report.append(f"CHOSE {new} of {dict(names)} for {[x[0] for x in group][:6]}")
    # clash: new exists in a member class already
    clash = [x for x in group if any(new in c.names for c in infos[x[0]].mro if c.module_name in OURS) and rename.get((x[0], new)) is None and not any(k == (x[0], new) for k in [p for pp in proposals.values() for p, _ in pp])]
    if clash: report.append(f"CLASH {new} in {clash[:3]}"); continue
    for x in group: rename[x] = new
def all_members(i):
    return {n for c in i.mro if c.module_name in OURS for n in c.names if not n.startswith("__")}
products = [(i, all_members(i)) for i in infos.values() if not i.module_name.startswith("tests")]
fakes = 0
for c in infos.values():
    if not c.module_name.startswith("tests"): continue
    if any(b.module_name in OURS and not b.module_name.startswith("tests") for b in c.mro[1:]): continue
    rest = {n for n in c.names if not n.startswith("__")}
    for _ in range(4):
        best, score = None, (0, 0)
        for pi, ms in products:
            sh = rest & ms
            if len(sh) >= 2 and len(sh) / len(rest) >= 0.4 or (len(sh) == len(rest) == 1):
                sc = (len(sh), len(sh) / max(1, len(ms)))
                if sc > score: best, score = pi, sc
        if best is None: break
        for n in sorted(rest & all_members(best)):
            d = definers(best, n)[0]
            new = rename.get((d.fullname, n))
            if new:
                for x in members_of.get(find((c.fullname, n)), [(c.fullname, n)]):
                    if x not in rename: rename[x] = new; fakes += 1
        rest -= all_members(best)
        if not rest: break
print(fakes, "members of stand-ins", file=sys.stderr)
byname = collections.defaultdict(set)
for info in infos.values():
    for name in info.names: byname[name].add(rename.get((info.fullname, name), name))

# --- edits
text = {m: OURS[m].read_text() for m in trees}
lines = {m: t.splitlines(keepends=True) for m, t in text.items()}
offs = {}
for m, ls in lines.items():
    o = [0]
    for l in ls: o.append(o[-1] + len(l))
    offs[m] = o
edits: dict[str, dict[tuple[int, int], str]] = collections.defaultdict(dict)
def pos(m, line, col):  # mypy columns are utf-8? ast col offsets are bytes
    l = lines[m][line - 1]
    if not l.isascii(): col = len(l.encode()[:col].decode(errors="ignore"))
    return offs[m][line - 1] + col
def edit(m, at, old, new):
    if text[m][at:at + len(old)] != old:
        report.append(f"MISPLACED {OURS[m].name}:{text[m].count(chr(10),0,at)+1} {old}→{new}: {text[m][at:at+len(old)]!r}"); return
    edits[m][at, at + len(old)] = new
def infos_of(t):
    t = T.get_proper_type(t)
    if isinstance(t, T.Instance): return [t.type]
    if isinstance(t, T.UnionType): return [i for x in t.items for i in infos_of(x)]
    if isinstance(t, T.TypeType): return infos_of(t.item)
    if isinstance(t, T.CallableType) and t.is_type_obj(): return [t.type_object()]
    if isinstance(t, T.Overloaded) and t.is_type_obj(): return [t.type_object()]
    if isinstance(t, T.TypeVarType): return infos_of(t.upper_bound)
    if isinstance(t, T.TupleType): return infos_of(t.partial_fallback)
    if isinstance(t, T.NoneType): return []
    return []
def new_for(infs, name):
    out = set()
    for i in infs:
        ds = definers(i, name)
        if ds: out.add(rename.get((ds[0].fullname, name), name))
    return out
unres = collections.Counter()
NOFALL = set(open('/tmp/rename/nofall.txt').read().split()); NOFALLP = set(open('/tmp/rename/nofallp.txt').read().split())
_h = {}
def holders(name):
    if name not in _h: _h[name] = [(i, rename.get((i.fullname, name), name)) for i in infos.values() if name in i.names]
    return _h[name]
_w = {}
def words(mod):
    if mod not in _w: _w[mod] = set(re.findall(r"\w+", (ROOT / mod).read_text()))
    return _w[mod]
def attr_new(e_expr, name, where):
    t = types.get(e_expr)
    inf = infos_of(t) if t is not None else []
    if not inf and isinstance(e_expr, N.RefExpr) and isinstance(e_expr.node, N.TypeInfo): inf = [e_expr.node]
    got = new_for(inf, name)
    if len(got) == 1: return got.pop()
    if len(got) > 1: report.append(f"AMBIGUOUS {where} .{name}: {got}"); return None
    if isinstance(e_expr, N.SuperExpr): return None
    alln = byname.get(name, set())
    if name in interesting and alln and alln != {name}:
        if inf: return None  # a library's
        if len(alln) == 1 and len(name) > 3:
            report.append(f"FALLBACK {where} .{name} → {next(iter(alln))}")
            return None if (name in NOFALL or (not where.startswith("tests/") and name in NOFALLP)) else next(iter(alln))
        if where.startswith("tests/") and name not in NOFALL:
            mod = where.split(":")[0]
            cand = {new for i, new in holders(name) if i.name in words(mod)}
            if len(cand) == 1:
                report.append(f"NEAR {where} .{name} → {cand}")
                return cand.pop()
        unres[f"{where} .{name} → {sorted(alln)}"] += 1
    return None
def origin(src, name):
    t = res.files.get(src)
    sym = t.names.get(name) if t else None
    node = sym.node if sym else None
    return (node.fullname if node is not None and getattr(node, "fullname", None) else f"{src}.{name}")
def full_new(node, fullname):
    if isinstance(node, N.Decorator): node = node.func
    return glob.get(fullname)
def def_name_at(m, line, name, kw):
    """offset of the name in `def name`/`class name` at or behind `line`"""
    at = offs[m][line - 1]
    mt = re.compile(rf"\b{kw}\s+({re.escape(name)})\b").search(text[m], at)
    return mt.start(1) if mt else -1
for m, ns in allnodes.items():
    short = OURS[m].relative_to(ROOT).as_posix()
    for n in ns:
        where = f"{short}:{getattr(n, 'line', 0)}"
        if isinstance(n, N.FuncDef):
            full = n.fullname
            new = None
            if n.info and n.info.fullname in infos: new = rename.get((n.info.fullname, n.name))
            else: new = glob.get(full)
            if new is None and not n.info and (m, n.name) in want and full not in glob: pass
            if new: 
                at = def_name_at(m, n.line, n.name, "def")
                if at >= 0: edit(m, at, n.name, new)
        elif isinstance(n, N.MemberExpr):
            new = None
            if n.fullname and n.fullname in glob: new = glob[n.fullname]
            elif isinstance(n.expr, N.RefExpr) and isinstance(n.expr.node, N.MypyFile): new = glob.get(origin(n.expr.node.fullname, n.name)) if origin(n.expr.node.fullname, n.name).rpartition(".")[2] == n.name else None
            elif n.name in interesting: new = attr_new(n.expr, n.name, where)
            if new and new != n.name:
                end = pos(m, n.end_line, n.end_column)
                edit(m, end - len(n.name), n.name, new)
        elif isinstance(n, N.SuperExpr):
            if n.name in interesting:
                new = rename.get((n.info.fullname, n.name)) if n.info else None
                if new is None and n.info:
                    got = new_for(n.info.mro[1:], n.name); new = got.pop() if len(got) == 1 else None
                if new and new != n.name:
                    end = pos(m, n.end_line, n.end_column); edit(m, end - len(n.name), n.name, new)
        elif isinstance(n, N.NameExpr):
            new = glob.get(n.fullname) if n.fullname and n.fullname.rpartition(".")[2] == n.name else None
            if new is None and isinstance(n.node, (N.Var, N.FuncDef, N.Decorator)):
                info = getattr(n.node, "info", None) if not isinstance(n.node, N.Decorator) else n.node.func.info
                if info and info.fullname in infos and n.name in interesting: new = rename.get((info.fullname, n.name))
            if new and n.line > 0:
                at = pos(m, n.line, n.column)
                if text[m][at:at+len(n.name)] == n.name: edit(m, at, n.name, new)
        elif isinstance(n, N.StrExpr) and re.fullmatch(r"(schemas|producer|consumer|coordinator|rowlock|deploy)(\.\w+)+(:[\w.]+)?", n.value):
            parts = re.split(r"([.:])", n.value)
            for k in range(len(parts), 0, -2):
                mod = "".join(parts[:k])
                if mod in OURS:
                    tail = parts[k:]
                    if len(tail) >= 2:
                        o = origin(mod, tail[1]); i = infos.get(o)
                        if len(tail) >= 4 and i:
                            got = new_for([i], tail[3]); tail[3] = got.pop() if len(got) == 1 else tail[3]
                        tail[1] = glob.get(o, tail[1])
                        newv = mod + "".join(tail)
                        if newv != n.value:
                            at = text[m].find(n.value, pos(m, n.line, n.column))
                            if at >= 0: edit(m, at, n.value, newv)
                    break
        elif isinstance(n, N.ImportFrom):
            src = n.id
            if n.relative: continue
            seg_a, seg_b = offs[m][n.line - 1], pos(m, n.end_line, n.end_column) if n.end_line else offs[m][n.line]
            for name, alias in n.names:
                new = glob.get(origin(src, name))
                if new and origin(src, name).rpartition(".")[2] == name:
                    for mt in re.finditer(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text[m][seg_a:seg_b]):
                        if mt.start() > text[m][seg_a:seg_b].find(" import "):
                            edit(m, seg_a + mt.start(), name, new); break
        elif isinstance(n, N.CallExpr):
            a = n.args
            # setattr(obj, "name", …), patch.object(obj, "name")
            for i in range(len(a) - 1):
                if isinstance(a[i + 1], N.StrExpr) and a[i + 1].value.isidentifier() and isinstance(a[i], N.Expression) and not isinstance(a[i], N.StrExpr):
                    s = a[i + 1]
                    callee = n.callee.name if isinstance(n.callee, (N.MemberExpr, N.NameExpr)) else ""
                    if callee in ("setattr", "getattr", "hasattr", "delattr", "object", "broken", "patched", "replaced") or short.startswith("tests"):
                        new = None
                        if isinstance(a[i], N.RefExpr) and isinstance(a[i].node, N.MypyFile): new = glob.get(origin(a[i].node.fullname, s.value))
                        elif s.value in interesting:
                            t = types.get(a[i]); inf = infos_of(t) if t is not None else []
                            if isinstance(a[i], N.RefExpr) and isinstance(a[i].node, N.TypeInfo): inf = [a[i].node]
                            got = new_for(inf, s.value); new = got.pop() if len(got) == 1 else None
                        if new and new != s.value:
                            at = pos(m, s.line, s.column) + 1
                            if text[m][at:at+len(s.value)] == s.value: edit(m, at, s.value, new)
            if short.startswith("tests") and isinstance(n.callee, (N.NameExpr, N.MemberExpr)) and n.callee.name in ("SimpleNamespace", "Mock", "MagicMock", "Namespace"):
                for k, v in zip(n.arg_names, a):
                    if k and k in interesting:
                        h = [(i, x) for i, x in holders(k) if not i.module_name.startswith("tests")]
                        cand = {x for _, x in h}
                        if len(cand) > 1: cand = {x for i, x in h if i.name in words(short)} or cand
                        if len(cand) == 1 and (new := cand.pop()) != k:
                            start = pos(m, v.line, v.column); back = text[m].rfind(k, 0, start)
                            if back >= 0 and re.fullmatch(rf"{k}\s*=\s*\(*\s*", text[m][back:start]): edit(m, back, k, new)
                        elif len(cand) > 1: report.append(f"NAMESPACE {where} {k}: {cand}")
            # keyword arguments that are fields
            names = n.arg_names
            if any(k in interesting for k in names if k):
                inf = []
                if isinstance(n.callee, N.RefExpr) and isinstance(n.callee.node, N.TypeInfo): inf = [n.callee.node]
                elif isinstance(n.callee, (N.NameExpr, N.MemberExpr)) and (n.callee.name in ("replace", "altered", "with_") or (n.callee.fullname or "").endswith(".replace")) and a:
                    t = types.get(a[0]); inf = infos_of(t) if t is not None else []
                for k, v in zip(names, a):
                    if k and inf and all(isinstance(i.get(k).node, N.Var) for i in inf if i.get(k)):
                        got = new_for(inf, k)
                        if len(got) == 1 and (new := got.pop()) != k:
                            start = pos(m, v.line, v.column)
                            back = text[m].rfind(k, 0, start)
                            if back >= 0 and re.fullmatch(rf"{k}\s*=\s*\(*\s*", text[m][back:start]): edit(m, back, k, new)
                            else: report.append(f"KEYWORD {where} {k}")
        elif isinstance(n, N.AssignmentStmt) and isinstance(n.lvalues[0], N.NameExpr) and n.lvalues[0].name == "__all__" and isinstance(n.rvalue, (N.ListExpr, N.TupleExpr)):
            for x in n.rvalue.items:
                if isinstance(x, N.StrExpr) and (new := glob.get(origin(m, x.value))):
                    edit(m, pos(m, x.line, x.column) + 1, x.value, new)
        elif isinstance(n, (N.TupleExpr, N.ListExpr)):
            it = n.items
            for i in range(len(it) - 1):
                if isinstance(it[i + 1], N.StrExpr) and isinstance(it[i], N.RefExpr):
                    s = it[i + 1]; new = None
                    if isinstance(it[i].node, N.MypyFile): new = glob.get(origin(it[i].node.fullname, s.value))
                    elif isinstance(it[i].node, N.TypeInfo) and s.value in interesting:
                        got = new_for([it[i].node], s.value); new = got.pop() if len(got) == 1 else None
                    if new and new != s.value:
                        at = pos(m, s.line, s.column) + 1
                        if text[m][at:at+len(s.value)] == s.value: edit(m, at, s.value, new)
        elif isinstance(n, P.ClassPattern):
            if any(k in interesting for k in n.keyword_keys) and isinstance(n.class_ref, N.RefExpr) and isinstance(n.class_ref.node, N.TypeInfo):
                for k, v in zip(n.keyword_keys, n.keyword_values):
                    got = new_for([n.class_ref.node], k)
                    if len(got) == 1 and (new := got.pop()) != k:
                        start = pos(m, v.line, v.column); back = text[m].rfind(k, 0, start)
                        edit(m, back, k, new)
# --- classes, aliases (CapWords) and constants: tokens
caps = {full: new for full, new in glob.items() if re.match(r"_*[A-Z]", full.rpartition(".")[2])}
capmods = collections.defaultdict(dict)
for full, new in caps.items():
    mod, _, old = full.rpartition(".")
    if mod in OURS: capmods[mod][old] = new
imp = re.compile(r"^\s*from ([\w.]+) import (\([^)]*\)|[^\n]*)", re.M)
for m, src in text.items():
    names = dict(capmods.get(m, {}))
    mods = {}
    def capnew(a, b):
        o = origin(a, b)
        return caps.get(o) if o.rpartition(".")[2] == b else None
    for mt in imp.finditer(src):
        for part in mt.group(2).strip("()").replace("\n", " ").split(","):
            w = part.split("#")[0].split()
            if not w: continue
            cn = capnew(mt.group(1), w[0])
            if cn and len(w) == 1: names[w[0]] = cn
            elif cn and len(w) == 3:
                mw = re.search(rf"(?<![\w.]){w[0]}\s+as\b", mt.group(2)); edit(m, mt.start(2) + mw.start(), w[0], cn)
            sub = f"{mt.group(1)}.{w[0]}"
            if sub in capmods: mods[w[-1]] = capmods[sub]
    if not names and not mods: continue
    prev = prevprev = None
    try: toks = list(tokenize.generate_tokens(io.StringIO(src).readline))
    except tokenize.TokenError: continue
    for i, tk in enumerate(toks):
        if tk.type == tokenize.NAME:
            p1 = toks[i-1].string if i else ""; p2 = toks[i-2].string if i > 1 else ""
            at = offs[m][tk.start[0]-1] + tk.start[1]
            if p1 != "." and tk.string in names: edit(m, at, tk.string, names[tk.string])
            elif p1 == "." and p2 in mods and tk.string in mods[p2]: edit(m, at, tk.string, mods[p2][tk.string])
        elif tk.type in (tokenize.COMMENT, tokenize.STRING) and names:
            a0 = offs[m][tk.start[0]-1] + tk.start[1]
            raw = src[a0: offs[m][tk.end[0]-1] + tk.end[1]]
            for mt in re.finditer(r"(?<![\w.])(" + "|".join(map(re.escape, names)) + r")(?!\w)", raw):
                if tk.type == tokenize.COMMENT or raw.lstrip("rbfRBF").startswith('"""') or re.search(r"\b" + mt.group(1) + r"\b(\[|\||$|\")", raw):
                    if names[mt.group(1)] != mt.group(1) and (len(mt.group(1)) > 6 or f"`{mt.group(1)}" in raw or raw.startswith('"') and not raw.startswith('"""')): edit(m, a0 + mt.start(), mt.group(1), names[mt.group(1)])
out = {}
for m, ed in edits.items():
    s = text[m]; last = None
    for (a, b), new in sorted(ed.items(), reverse=True): s = s[:a] + new + s[b:]
    out[m] = s
    if not DRY: OURS[m].write_text(s)
json.dump({"rename": [[c, a, n] for (c, a), n in rename.items()], "glob": glob}, open("/tmp/rename/applied.json", "w"))
json.dump({OURS[m].relative_to(ROOT).as_posix(): sorted([a, b, n] for (a, b), n in ed.items()) for m, ed in edits.items()}, open("/tmp/rename/edits.json", "w"))
json.dump({OURS[m].relative_to(ROOT).as_posix(): text[m] for m in edits}, open("/tmp/rename/before.json", "w"))
open("/tmp/rename/report.txt", "w").write("\n".join(report + ["UNRESOLVED " + k for k in unres]) + "\n")
print(len(rename), "members", len(glob), "globals;", sum(map(len, edits.values())), "edits in", len(edits), "files;", len(report), "reports;", len(unres), "unresolved", file=sys.stderr)
