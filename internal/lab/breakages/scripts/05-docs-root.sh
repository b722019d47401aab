# story: slotctl.json was written for another docs root than the service has
# rows: slotctl-docs-root
# level: basic
broken() {
	keep $libexec/slotctl.json
	sed -i 's#"docs_root": "[^"]*"#"docs_root": "/srv/elsewhere"#' $libexec/slotctl.json
}
