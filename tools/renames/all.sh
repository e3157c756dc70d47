set -e
W=/tmp/wt/rename; PY=/work/main/.venv/bin
git -C $W checkout -q . ; git -C $W clean -fdq; git -C $W reset -q --hard main
cd $W
PYTHONPATH=$W $PY/python /tmp/rename/engine.py $W /tmp/rename/p[12346]_*.tsv $EXTRA 2>&1 | tail -2
grep "KEYWORD\|CLASH\|MISPL\|AMBIG\|CHOSE\|FOREIGN" /tmp/rename/report.txt || true
$PY/python /tmp/rename/post.py $W | tail -20
$PY/python /tmp/rename/f821.py $W
$PY/ruff check --select I,RUF022 --fix -q . || true
$PY/ruff format -q .
$PY/ruff check . --output-format concise| tail -15 || true
$PY/mypy 2>&1 | tail -30 || true
sed -i 's/{self\._line(figures, latency)}/{self._format_line(figures, latency)}/' rowlock/demo/view.py
sed -i 's/import are_wire_equal as wire_equal/import are_wire_equal as are_wire_equal/' schemas/table/typemap.py
