import ast, sys, keyword, builtins, collections
sys.path.insert(0,'/work/main')
from tests.gates import names
from tests.gates.sources import load_product
part=sys.argv[1]
src={s.path:s for s in load_product()}
quals={}
for p,s in src.items():
    d={}
    def walk(node,q,kind):
        for c in ast.iter_child_nodes(node):
            if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)):
                d.setdefault(q+c.name,c); walk(c,q+c.name+".",type(c))
            elif isinstance(c,(ast.Assign,ast.AnnAssign,ast.TypeAlias if hasattr(ast,"TypeAlias") else ast.AnnAssign)):
                for t in (c.targets if isinstance(c,ast.Assign) else [c.target]):
                    if isinstance(t,ast.Name): d.setdefault(q+t.id,c)
                    if isinstance(t,ast.Attribute) and isinstance(t.value,ast.Name) and t.value.id=="self":
                        d.setdefault(q.rsplit(".",2)[0]+"."+t.attr,c)
                walk(c,q,kind)
            else: walk(c,q,kind)
    walk(s.tree,"",None); quals[p]=d
verbs=names.load_verbs()|names._PREDICATES|names._CONVERSIONS
seen=set(); bad=0; newnames=collections.Counter()
for i,line in enumerate(open(f"/tmp/rename/{part}.tsv"),1):
    line=line.rstrip("\n")
    if not line.strip(): continue
    f=line.split("\t")
    def err(m):
        global bad; bad+=1; print(f"line {i}: {m}: {line}")
    if len(f)!=3: err("not three fields"); continue
    p,q,n=f
    if p not in quals: err("no such file"); continue
    if q not in quals[p]: err("no such name"); continue
    if (p,q) in seen: err("twice")
    seen.add((p,q))
    if not n.isidentifier() or keyword.iskeyword(n) or (hasattr(builtins,n)): err("not usable")
    old=q.rsplit(".",1)[-1]
    if old.startswith("_")!=n.startswith("_"): err("underscore")
    node=quals[p][q]
    if isinstance(node,(ast.FunctionDef,ast.AsyncFunctionDef)):
        w=names.split_name(n)
        deco={names._name_last(e) for e in node.decorator_list}
        if not deco & (names._NOT_FUNCTIONS|names._NOUNS) and (w[0] not in verbs or "of" in w[1:2]): err("no verb (or add it to your message)")
        if "." not in q and len(w)==1: err("no object")
    owner=q.rpartition(".")[0]
    sib=(owner+"." if owner else "")+n
    if sib in quals[p] and (p,sib) not in seen: err("clashes with an existing name (fine only if that one is renamed too)")
    newnames[p,sib]+=1
for k,c in newnames.items():
    if c>1: print("same new name twice:",k)
todo=[l for l in open(f"/tmp/rename/{part}.list")]
path=""; missing=[]
for l in todo:
    if not l.startswith("  "): path=l.split(":")[0]
    elif l.startswith("  def ") and ("no verb" in l.split(" [",1)[-1].split("]")[0] or "no object" in l or "SEVERAL" in l):
        q=l[6:].split("(")[0]
        if (path,q) not in seen: missing.append((path,q))
print(len(seen),"lines,",bad,"errors,",len(missing),"breaches without a new name")
for m in missing[:40]: print("  missing",*m)
