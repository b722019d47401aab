# story: somebody made the app folder and the live release writable for everybody, to copy a file: any slot can put a launcher of its own there
# rows: path-writable
# level: basic
broken() {
	keep_modes $app "$release" "$release/bin" "$launcher"
	chmod 0777 $app "$release" "$release/bin" "$launcher"
}
