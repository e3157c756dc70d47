import json, subprocess, sys, pathlib, re, collections
ROOT=pathlib.Path(sys.argv[1]); glob=json.load(open('/tmp/rename/applied.json'))["glob"]
rev=collections.defaultdict(set)
for full,new in glob.items(): rev[full.rpartition(".")[2]].add((full.rpartition(".")[0],new))
for _ in range(3):
    out=json.loads(subprocess.run([sys.executable,"-m","ruff","check","--select","F821","--output-format","json",str(ROOT)],capture_output=True,text=True).stdout)
    if not out: break
    byfile=collections.defaultdict(list)
    for e in out:
        m=re.search(r"`(\w+)`",e["message"]); byfile[e["filename"]].append((e["location"]["row"],e["location"]["column"],m[1]))
    n=0
    for f,es in byfile.items():
        ls=open(f).read().splitlines(keepends=True)
        txt="".join(ls)
        for r,c,name in sorted(set(es),reverse=True):
            cand={new for mod,new in rev.get(name,()) if re.search(rf"\b{new}\b",txt)}
            if len(cand)==1 and ls[r-1][c-1:c-1+len(name)]==name:
                ls[r-1]=ls[r-1][:c-1]+cand.pop()+ls[r-1][c-1+len(name):]; n+=1
            else: print("left",f,r,name,cand)
        open(f,"w").write("".join(ls))
    if not n: break
print("done")
