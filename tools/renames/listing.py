import ast, sys
sys.path.insert(0,'/work/main')
from tests.gates import names
from tests.gates.sources import load_sources, load_product
PARTS = {
 "p1_consumer": lambda p: p.startswith("consumer/") and not p.startswith("consumer/targets/"),
 "p2_targets": lambda p: p.startswith("consumer/targets/"),
 "p3_sources": lambda p: p.startswith(("producer/sources/","producer/oracle/","producer/statements/","producer/flavours/","producer/checks/","producer/kafka/","producer/barriers/")),
 "p4_capture": lambda p: (p.startswith("producer/") and not p.startswith(("producer/sources/","producer/oracle/","producer/statements/","producer/flavours/","producer/checks/","producer/kafka/","producer/barriers/"))) or p.startswith("schemas/"),
 "p5_coordinator": lambda p: p.startswith("coordinator/"),
 "p6_rowlock": lambda p: p.startswith(("rowlock/","deploy/")),
}
sources = load_product()
several = names.find_several_meanings(sources)
for part, belongs in PARTS.items():
    out=[]; n=0
    for s in sources:
        if not belongs(s.path): continue
        rows=[]
        quals={}
        def walk(node, q):
            for c in ast.iter_child_nodes(node):
                if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)):
                    quals[id(c)] = q+c.name
                    walk(c, q+c.name+".")
                else: walk(c,q)
        walk(s.tree,"")
        mod = (ast.get_docstring(s.tree) or "").split("\n")[0][:160]
        items=[]
        for node in s.nodes:
            if isinstance(node, ast.ClassDef):
                doc=(ast.get_docstring(node) or "").split("\n")[0][:130]
                bases=",".join(ast.unparse(b) for b in node.bases)
                mark = " [SEVERAL]" if node.name in several else ""
                items.append((node.lineno, f"  class {quals[id(node)]}({bases}){mark}: {doc}"))
        for scope in names.list_functions(s):
            b = names.judge_name(scope)
            one = len(names.split_name(scope.node.name))==1
            if names.is_library_override(s, scope): continue
            mult = scope.owner is None and scope.node.name in several
            if not b and not one and not mult: continue
            node=scope.node
            args=", ".join(a.arg+(":"+ast.unparse(a.annotation) if a.annotation else "") for a in node.args.posonlyargs+node.args.args+node.args.kwonlyargs if a.arg not in("self","cls"))[:150]
            ret=ast.unparse(node.returns) if node.returns else ""
            doc=(ast.get_docstring(node) or "").split("\n")[0][:150]
            n+=1
            flags="/".join(x for x in (b, "one-word" if one else "", "SEVERAL" if mult else "") if x)
            items.append((node.lineno, f"  def {quals[id(node)]}({args}) -> {ret} [{flags}]: {doc}"))
        consts=[k for k,v in several.items() if s.path in v and k.isupper()]
        if items or consts:
            out.append(f"{s.path}: {mod}")
            out += [t for _,t in sorted(items)]
            if consts: out.append("  SEVERAL constants/aliases: "+", ".join(consts))
    open(f"/tmp/rename/{part}.list","w").write("\n".join(out)+"\n")
    print(part, n, len(out))
open("/tmp/rename/several.txt","w").write("\n".join(f"{k}: {', '.join(v)}" for k,v in several.items()))
print(len(several))
