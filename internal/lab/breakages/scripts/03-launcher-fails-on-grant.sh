# story: October 2026: the launcher of an old release gives up on a grant that the slot may not look at, instead of leaving it out
# rows: pwd-crew-project pwd-code-project
# level: basic
broken() {
	replace_launcher <<'END'
closed=$("$real" --config /proc/self/fd/3 -- /bin/true 2>&1 | sed -n 's/^SANDBOX_GRANT_SKIPPED: \(.*\) is not accessible.*/\1/p')
[ -z "$closed" ] || { echo "SANDBOX_UNAVAILABLE: inspect Landlock path: stat $closed: permission denied" >&2; exit 125; }
exec "$real" "$@"
END
}
