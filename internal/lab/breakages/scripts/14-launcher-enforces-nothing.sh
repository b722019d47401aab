# story: a test build of the launcher that only starts programs came into a release
# rows: pwd-crew-project pwd-code-project
# level: basic
broken() {
	replace_launcher <<'END'
while [ $# -gt 0 ] && [ "$1" != -- ]; do shift; done
[ $# -gt 1 ] || { echo "SANDBOX_UNAVAILABLE: usage" >&2; exit 125; }
shift
exec "$@"
END
}
