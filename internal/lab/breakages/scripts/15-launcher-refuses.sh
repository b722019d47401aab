# story: a launcher that asks for more than this kernel has refuses every command
# rows: pwd-docs-root pwd-workflow pwd-crew-project pwd-code-project
# level: basic
broken() {
	replace_launcher <<'END'
echo "SANDBOX_UNAVAILABLE: not today" >&2
exit 125
END
}
