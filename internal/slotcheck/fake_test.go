package slotcheck_test

const (
	libexec  = "/usr/local/libexec/agentworks"
	dropFake = `rm -f /srv/vs/releases/*/bin/real-runner`
)

// fake is a script that puts body, a shell script, in the launcher's place; the
// real one stays beside it.
func fake(body string) string {
	return `cd /srv/vs/current/bin
cp -p video-studio-landlock-runner real-runner
cat >.fake <<'END'
#!/bin/sh
` + body + `
END
chmod 0755 .fake; chown vs:vs .fake; mv .fake video-studio-landlock-runner`
}
