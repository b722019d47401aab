package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"agentworks-deploy/internal/report"
)

// write makes a folder with one host file, x.yaml.
func write(t testing.TB, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

const local = "channels: {admin: {local: {}}, service: {local: {}}}\n"

func TestLayersOverrideEachOther(t *testing.T) {
	dir := write(t, "product: vs\nslots: {count: 20, mode: on}\nretired: []\nchannels: {admin: {lab: {name: one}}, service: {lab: {name: one}}}\n")
	l, err := Load(dir, "x",
		[]string{"AGENTWORKS_DEPLOY_SLOTS_COUNT=30", "AGENTWORKS_DEPLOY_LAB=two", "AGENTWORKS_DEPLOY_HOSTS_DIR=/x", "PATH=/bin", "AGENTWORKS_DEPLOY_RELEASE_SERVICES=a,b"},
		[]Setting{{Key: "slots.count", Value: "40", Flag: "--set"}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "x.yaml")
	want := map[string][2]string{
		"product":                   {"vs", file + ":1"},
		"slots.mode":                {"on", file + ":2"},
		"slots.count":               {"40", "--set"},
		"slots.prefix":              {"slot", "default"},
		"channels.admin.lab.name":   {"two", "AGENTWORKS_DEPLOY_LAB"},
		"channels.service.lab.name": {"two", "AGENTWORKS_DEPLOY_LAB"},
		"retired":                   {"[]", file + ":3"},
		"paths.app":                 {"/srv/vs", "default"},
		"paths.docs":                {"/srv/vs/data/docs", "default"},
		"release.services":          {"[a, b]", "AGENTWORKS_DEPLOY_RELEASE_SERVICES"},
	}
	for _, v := range l.Explain() {
		if w, ok := want[v.Key]; ok && w != [2]string{v.Value, v.Source} {
			t.Errorf("%s: %q from %s, want %q from %s", v.Key, v.Value, v.Source, w[0], w[1])
		}
		delete(want, v.Key)
	}
	if len(want) > 0 {
		t.Errorf("not explained: %v", want)
	}
}

func TestAKeyThatIsPresentCountsEvenWhenEmpty(t *testing.T) {
	for text, problem := range map[string]string{
		"slots: {count: }":       "x.yaml:2: slots.count: 0 is not between 1 and 998",
		"slots: {prefix: ''}":    `x.yaml:2: slots.prefix: is empty`,
		"paths: {app: }":         "x.yaml:2: paths.app: is empty",
		"release: {manager: ~ }": `x.yaml:2: release.manager: "" is none of user, system`,
		"tier: ''":               `x.yaml:2: tier: "" is none of single, team`,
	} {
		_, err := Load(write(t, "product: vs\n"+text+"\n"+local), "x", nil, nil)
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %q", text, err, problem)
		}
	}
	l, err := Load(write(t, "product: vs\nrelease: {services: }\n"+local), "x", nil, nil)
	if err != nil || len(l.Host.Release.Services) != 0 {
		t.Errorf("an empty list of services became %q, %v", l.Host.Release.Services, err)
	}
}

func TestBadHostFilesNameFileLineAndKey(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "x.yaml: is empty"},
		{"# nothing\n", "x.yaml: is empty"},
		{"- a", "x.yaml:1: wants keys and values, has a list"},
		{"product: vs\nslot: {}\n", "x.yaml:2: slot: unknown key; did you mean slots?"},
		{"product: vs\nslots:\n  mode: on\n  cuont: 3\n", "x.yaml:4: slots.cuont: unknown key; did you mean count?"},
		{"product: vs\nproduct: vs\n", `x.yaml:2: mapping key "product" already defined`},
		{"product: [\n", "x.yaml:1: "},
		{"product: vs\n\tslots: {}\n", "x.yaml:2: "},
		{"product: vs\nslots: {count: many}\n", "x.yaml:2: slots.count: wants a whole number, has text"},
		{"product: vs\nslots: {count: 1.5}\n", "x.yaml:2: slots.count: wants a whole number, has a number"},
		{"product: vs\nslots: {count: 99999999999999999999}\n", "x.yaml:2: slots.count: wants a whole number"},
		{"product: vs\nslots: {request_file: yes}\n", "x.yaml:2: slots.request_file: wants true or false, has text"},
		{"product: 12\n", "x.yaml:1: product: wants text, has a number"},
		{"product: vs\nslots: 3\n", "x.yaml:2: slots: wants keys and values, has a number"},
		{"product: vs\nretired: tool\n", "x.yaml:2: retired: wants a list, has text"},
		{"product: vs\nretired:\n  - a\n  - 2\n", "x.yaml:4: retired: wants a list of texts, has a number"},
		{"product: vs\nrelease: {health: [localhost:8000]}\n", "release.health: wants a list of texts, has a key and a value (put quotes round a text with a colon) in it"},
		{"product: vs\nlisten: {address: {a: b}}\n", "listen.address: wants text, has a key and a value (put quotes round a text with a colon)"},
		{"product: &a vs\ntier: *a\n", "an anchor or alias"},
		{"product: vs\n---\nproduct: vs\n", "holds more than one document"},
		{"product: vs\nchannels: {admin: {local: {x: 1}}}\n", "x.yaml:2: channels.admin.local.x: unknown key"},
	} {
		_, err := Load(write(t, c.text), "x", nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || report.CodeOf(err) != report.ExitUsage {
			t.Errorf("%q: %v (%d), want %q", c.text, err, report.CodeOf(err), c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: more than one line: %v", c.text, err)
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	const both = "channels: {admin: {local: {}}, service: {local: {}}}"
	for _, c := range []struct{ name, text, want string }{
		{"no product", both, "product: is missing"},
		{"B05 odd product", "product: 0day\n" + both, "product: "},
		{"product is root", "product: root\n" + both, "is taken"},
		{"product in LIBEXEC", "product: slotctl\n" + both, "is taken"},
		{"product is a slot", "product: slot01\n" + both, "one of its own slots"},
		{"product is the group", "product: slotshared\n" + both, "one of its own slots"},
		{"B05 odd prefix", "product: vs\nslots: {prefix: 0day}\n" + both, "slots.prefix: "},
		{"prefix with dash", "product: vs\nslots: {prefix: a-b}\n" + both, "slots.prefix: "},
		{"too many slots", "product: vs\nslots: {count: 999}\n" + both, "slots.count: 999 is not between"},
		{"ids over nobody", "product: vs\nslots: {ids: 65000}\n" + both, "slots.ids: "},
		{"mode", "product: vs\nslots: {mode: maybe}\n" + both, "slots.mode: \"maybe\" is none of off, optin, on"},
		{"B45 path with space", "product: vs\npaths: {app: /srv/agent works}\n" + both, "paths.app: \"/srv/agent works\" is not an absolute path"},
		{"B45 path with control byte", "product: vs\npaths: {app: \"/srv/a\\x1b\"}\n" + both, `paths.app: "/srv/a\x1b" is not`},
		{"B45 path with newline", "product: vs\npaths: {app: \"/srv/a\\n\"}\n" + both, "paths.app: "},
		{"B45 path with wildcard", "product: vs\npaths: {app: /srv/a*}\n" + both, "paths.app: "},
		{"B45 path with percent", "product: vs\npaths: {docs: /srv/%h/x}\n" + both, "paths.docs: "},
		{"relative path", "product: vs\npaths: {app: srv/a}\n" + both, "paths.app: "},
		{"path with ..", "product: vs\npaths: {app: /srv/a/../b}\n" + both, "paths.app: \"/srv/a/../b\" is not clean: write /srv/b"},
		{"path with slash", "product: vs\npaths: {app: /srv/a/}\n" + both, "is not clean"},
		{"system folder", "product: vs\npaths: {app: /etc/vs}\n" + both, "belongs to the system"},
		{"top folder", "product: vs\npaths: {docs: /data}\n" + both, "is a folder of the system"},
		{"docs above app", "product: vs\npaths: {app: /srv/x/app, docs: /srv/x}\n" + both, "paths.docs: /srv/x holds the app folder"},
		{"docs is app", "product: vs\npaths: {docs: /srv/vs}\n" + both, "paths.docs: "},
		{"docs in releases", "product: vs\npaths: {docs: /srv/vs/releases/docs}\n" + both, "paths.docs: "},
		{"home in docs", "product: vs\npaths: {home: /srv/vs/data/docs/home}\n" + both, "paths.home: "},
		{"no channels", "product: vs\n", "channels.admin: is missing"},
		{"two ways", "product: vs\nchannels: {admin: {local: {}, lab: {name: a}}, service: {local: {}}}\n", "x.yaml:2: channels.admin: has local and lab: exactly one"},
		{"a service channel without a way", "product: vs\nchannels: {admin: {local: {}}, service: }\n", "x.yaml:2: channels.service: is empty: exactly one of local, lab, ssh, ssm, or no such key"},
		{"a service channel alone", "product: vs\nchannels: {service: {local: {}}}\n", "x.yaml:2: channels.admin: is missing"},
		{"lab without name", "product: vs\nchannels: {admin: {lab: }, service: {local: {}}}\n", "x.yaml:2: channels.admin.lab.name: is missing"},
		{"ssh option as host", "product: vs\nchannels: {admin: {ssh: {host: -oProxyCommand=x}}, service: {local: {}}}\n", "channels.admin.ssh.host: "},
		{"ssh without host", "product: vs\nchannels: {admin: {ssh: {}}, service: {local: {}}}\n", "channels.admin.ssh.host: is missing"},
		{"ssh with an empty host", "product: vs\nchannels: {admin: {ssh: {host: ''}}}\n", "channels.admin.ssh.host: is empty"},
		{"ssm without instance", "product: vs\nchannels: {admin: {ssm: {region: us-west-2}}, service: {local: {}}}\n", "channels.admin.ssm.instance: is missing: exactly one of id, tag"},
		{"ssm without region", "product: vs\nchannels: {admin: {ssm: {instance: {id: i-0123456789abcdef0}}}}\n", "channels.admin.ssm.region: is missing"},
		{"ssm stack without output", "product: vs\nchannels: {admin: {ssm: {region: us-west-2, instance: {stack: a}}}}\n", "channels.admin.ssm.instance.output: is missing: stack goes with one"},
		{"vault without mount", "product: vs\nvault: {address: 'https://x/'}\n" + both, "vault.mount: is missing: address goes with one"},
		{"half an approle", "product: vs\nvault: {approle: {role_id_file: /a/b}}\n" + both, "vault.approle.secret_id_file: is missing"},
		{"listener", "product: vs\nlisten: {address: \"8000\"}\n" + both, "listen.address: \"8000\" is not host:port"},
		{"listener of many colons", "product: vs\nlisten: {address: \"::1:8000\"}\n" + both, "is not host:port"},
		{"ssm twice", "product: vs\nchannels: {admin: {ssm: {region: us-west-2, instance: {id: i-0123456789abcdef0, tag: a=b}}}, service: {local: {}}}\n", "wants exactly one"},
		{"unit name", "product: vs\nrelease: {services: ['a b']}\n" + both, "release.services: "},
		{"health", "product: vs\nrelease: {health: ['ftp://x/']}\n" + both, "release.health: is not an http or https address"},
		{"password in address", "product: vs\nvault: {address: 'https://me:hunter2@x/', mount: secret}\n" + both, "holds a user or password"},
		{"env key", "product: vs\nenv: {required: ['A=b']}\n" + both, "env.required: "},
	} {
		_, err := Load(write(t, c.text), "x", nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || report.CodeOf(err) != report.ExitUsage {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a secret is shown: %v", c.name, err)
		}
	}
}

func TestBadUpperLayersSayWhichOne(t *testing.T) {
	dir := write(t, "product: vs\n"+local)
	for _, c := range []struct {
		environ  []string
		settings []Setting
		want     string
	}{
		{[]string{"AGENTWORKS_DEPLOY_SLOTS_CUONT=3"}, nil, "environment variable AGENTWORKS_DEPLOY_SLOTS_CUONT names no setting; did you mean AGENTWORKS_DEPLOY_SLOTS_COUNT?"},
		{[]string{"AGENTWORKS_DEPLOY_LABEL=x"}, nil, "AGENTWORKS_DEPLOY_LABEL names no setting; did you mean AGENTWORKS_DEPLOY_LAB?"},
		{[]string{"AGENTWORKS_DEPLOY_TOKEN=x"}, nil, "AGENTWORKS_DEPLOY_TOKEN names no setting"},
		{[]string{"AGENTWORKS_DEPLOY_SLOTS_COUNT=x"}, nil, `environment variable AGENTWORKS_DEPLOY_SLOTS_COUNT: wants a whole number, has "x"`},
		{[]string{"AGENTWORKS_DEPLOY_SLOTS_COUNT="}, nil, "AGENTWORKS_DEPLOY_SLOTS_COUNT: wants a whole number"},
		{[]string{"AGENTWORKS_DEPLOY_SLOTS_COUNT=0"}, nil, "AGENTWORKS_DEPLOY_SLOTS_COUNT: slots.count: 0 is not between"},
		{nil, []Setting{{"slots.cuont", "3", "--set"}}, "--set: slots.cuont: unknown key; did you mean count?"},
		{nil, []Setting{{"slots", "3", "--set"}}, "--set: slots: is a section"},
		{nil, []Setting{{"paths.app", "/srv/a b", "--app"}}, "--app: paths.app: "},
		{nil, []Setting{{"channels.admin.ssh.host", "x", "--set"}}, "channels.admin: has local and ssh"},
	} {
		_, err := Load(dir, "x", c.environ, c.settings)
		if err == nil || !strings.Contains(err.Error(), c.want) || report.CodeOf(err) != report.ExitUsage {
			t.Errorf("%v %v: %v, want %q", c.environ, c.settings, err, c.want)
		}
	}
}

// All faults of a file are told at once, in its order, and none that only
// follows from another one.
func TestEveryFaultOfAFileAtOnce(t *testing.T) {
	const both = "channels: {admin: {local: {}}}\n"
	for name, c := range map[string]struct {
		text string
		want []string // what each problem says, without the file
	}{
		"kinds do not hide values": {
			"product: X Y\nslots: {count: many, mode: maybe, cuont: 3}\ntier: big\npaths: {app: /etc/x, docs: rel}\n" + both,
			[]string{
				`:1: product: "X Y" does not match ^[a-z][a-z0-9-]{0,22}[a-z0-9]$`,
				":2: slots.count: wants a whole number, has text",
				":2: slots.cuont: unknown key; did you mean count?",
				`:2: slots.mode: "maybe" is none of off, optin, on`,
				`:3: tier: "big" is none of single, team`,
				`:4: paths.docs: "rel" is not an absolute path of letters, digits and _./+@-: unit files, sudo rules and mounts would read it in another way`,
				`:4: paths.app: "/etc/x" belongs to the system`,
			},
		},
		"what a product follows from": {both, []string{": product: is missing: the service account and the prefix of its units"}},
		"a product of the wrong kind": {"product: [a]\n" + both, []string{":1: product: wants text, has a list"}},
		"nothing in it":               {"tier: team\n", []string{": product: is missing: the service account and the prefix of its units", ": channels.admin: is missing: exactly one of local, lab, ssh, ssm"}},
		"a mistyped key stands for the one that is missing": {
			"prodcut: vs\nchannels: {admin: {ssh: {hots: a}}}\n",
			[]string{":1: prodcut: unknown key; did you mean product?", ":2: channels.admin.ssh.hots: unknown key; did you mean host?"},
		},
		"a mistyped way":              {"product: vs\nchannels: {admin: {shs: {host: a}}}\n", []string{":2: channels.admin.shs: unknown key; did you mean ssh?"}},
		"a section of the wrong kind": {"product: vs\nchannels: 3\n", []string{":2: channels: wants keys and values, has a number"}},
		"every item of a list": {
			"product: vs\nretired: [a b, 3, c d]\n" + both,
			[]string{
				":2: retired: wants a list of texts, has a number (put quotes round it for text) in it",
				`:2: retired: "a b" does not match ^[A-Za-z0-9_][A-Za-z0-9:_.@-]*$`, `:2: retired: "c d" does not match ^[A-Za-z0-9_][A-Za-z0-9:_.@-]*$`,
			},
		},
		"both ends of a channel": {
			"product: vs\nchannels:\n  admin: {ssh: {port: 70000}}\n  service: {ssm: {}}\n",
			[]string{
				":3: channels.admin.ssh.host: is missing", ":3: channels.admin.ssh.port: 70000 is not between 0 and 65535",
				":4: channels.service.ssm.region: is missing: the AWS region of the instance, like us-west-2", ":4: channels.service.ssm.instance: is missing: exactly one of id, tag, stack with output, or the channel's targets",
			},
		},
	} {
		dir := write(t, c.text)
		_, err := Load(dir, "x", nil, nil)
		var many *Problems
		if !errors.As(err, &many) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, p := range many.List {
			got = append(got, strings.TrimPrefix(p.Error(), filepath.Join(dir, "x.yaml")))
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

// The layers above the file are judged with it, and told after it.
func TestFaultsOfAllLayersAtOnce(t *testing.T) {
	_, err := Load(write(t, "product: vs\ntier: big\n"+local), "x", []string{"AGENTWORKS_DEPLOY_NOTHING=1", "AGENTWORKS_DEPLOY_SLOTS_COUNT=x"}, []Setting{{"paths.app", "rel", "--set"}})
	var many *Problems
	if !errors.As(err, &many) || len(many.List) != 4 || many.List[0].Key != "tier" {
		t.Fatalf("%v", err)
	}
}

func TestWarnings(t *testing.T) {
	for text, want := range map[string]string{
		"{admin: {ssh: {host: h, user: root}}, service: {ssh: {host: h, user: vs}}}":                                                           "",
		"{admin: {ssh: {host: h}}, service: {ssh: {host: h}}}":                                                                                 "",
		"{admin: {ssh: {host: h}}, service: {ssh: {host: h, user: root}}}":                                                                     "",
		"{admin: {ssh: {host: h, user: bob}}}":                                                                                                 `channels.admin.ssh.user: is "bob": verbs of this channel run as root`,
		"{admin: {ssh: {host: h}}, service: {ssh: {host: h, user: carol}}}":                                                                    `channels.service.ssh.user: is "carol": verbs of this channel run as the service account, vs, or`,
		"{admin: {ssh: {host: h}}, service: {ssm: {region: us-west-2, targets: {tag: a=b}}}}":                                                  "channels.service.ssm.targets: lead to many instances",
		"{admin: {ssm: {region: us-west-2, targets: {tag: a=b}}}}":                                                                             "",
		"{admin: {ssm: {region: us-west-2, targets: {tag: a=b}}}, service: {ssm: {region: us-west-2, targets: {ids: [i-0123456789abcdef0]}}}}": "",
	} {
		l, err := Load(write(t, "product: vs\nchannels: "+text+"\n"), "x", nil, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		warnings := l.Warnings()
		if want == "" && len(warnings) == 0 {
			continue
		}
		if want == "" || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "x.yaml:2: "+want) {
			t.Errorf("%s: %v, want %q", text, warnings, want)
		}
	}
}

func TestYmlIsNoHostFile(t *testing.T) {
	dir := write(t, "product: vs\n"+local)
	for _, name := range []string{"other.yml", ".hidden.yml"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := Overlooked(dir); !reflect.DeepEqual(got, []string{"other.yml"}) {
		t.Errorf("%v", got)
	}
	if _, err := Load(dir, "other", nil, nil); err == nil || !strings.HasSuffix(err.Error(), "/other.yml to other.yaml") {
		t.Errorf("%v", err)
	}
}

func TestUnknownHost(t *testing.T) {
	dir := write(t, "product: vs\n"+local)
	for name, want := range map[string]string{
		"y":           `unknown host "y": there is no ` + dir + "/y.yaml (hosts here: x)",
		"../x":        "is not a host name",
		"":            "is not a host name",
		"x\x1b":       "is not a host name",
		"X":           "is not a host name",
		"-x":          "is not a host name",
		"x/y.yaml":    "is not a host name: type y",
		"x.yaml":      `unknown host "x.yaml": type x`,
		"z.yaml":      `unknown host "z.yaml": there is no `,
		"nul\x00":     "is not a host name",
		".x":          "is not a host name",
		"folder-none": "unknown host",
	} {
		_, err := Load(dir, name, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || report.CodeOf(err) != report.ExitUsage {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

func TestDirRules(t *testing.T) {
	base := t.TempDir()
	t.Chdir(base)
	mkdir := func(names ...string) {
		for _, name := range names {
			if err := os.MkdirAll(filepath.Join(base, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	self := filepath.Join(base, "inst/bin/agentworks-deploy")
	mkdir("flag", "env", "inst/bin")
	env := []string{"AGENTWORKS_DEPLOY_HOSTS_DIR=" + filepath.Join(base, "env")}
	check := func(flag string, environ []string, wantDir, wantRule string) {
		t.Helper()
		dir, rule, err := Dir(flag, environ, self)
		if err != nil || dir != wantDir || rule != wantRule {
			t.Errorf("%s by %s, %v; want %s by %s", dir, rule, err, wantDir, wantRule)
		}
	}
	if _, _, err := Dir("", nil, self); report.CodeOf(err) != report.ExitUsage {
		t.Errorf("no folder at all: %v", err)
	}
	mkdir("inst/hosts")
	check("", nil, filepath.Join(base, "inst/hosts"), "beside the program's folder")
	mkdir("hosts")
	check("", nil, "hosts", "./hosts")
	check("", env, filepath.Join(base, "env"), "AGENTWORKS_DEPLOY_HOSTS_DIR")
	check("flag", env, "flag", "--hosts-dir")
	if _, _, err := Dir("missing", env, self); report.CodeOf(err) != report.ExitUsage {
		t.Errorf("a missing folder that was asked for: %v", err)
	}
}

func TestSecretsAreBlackedOut(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://me:hunter2@db.example/x?sslmode=off": "postgres://***@db.example/x?***",
		"host=db password=hunter2 user=me":               "host=db password=*** user=me",
		"https://vault.example:8200":                     "https://vault.example:8200",
		"https://x/y?token=abc":                          "https://x/y?***",
		"plain":                                          "plain",
	} {
		if got := redact(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// Every scalar of the schema has a name in the environment, and no two share one.
func TestEveryKeyHasItsOwnVariable(t *testing.T) {
	seen := map[string]string{envName("hosts.dir"): "hosts.dir", envName("lab"): "lab"}
	for _, key := range knownKeys() {
		if other, taken := seen[envName(key)]; taken {
			t.Errorf("%s and %s share %s", key, other, envName(key))
		}
		seen[envName(key)] = key
		h := Defaults()
		if err := setText(&h, key, "1"); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A host that crossed the channel is the host that was loaded.
func TestCommittedHostsAreRight(t *testing.T) {
	dir := "../../hosts"
	names, err := Names(dir)
	if err != nil || !reflect.DeepEqual(names, []string{"confida", "excellence", "lab", "rts", "sparkquill"}) {
		t.Fatalf("%v, %v", names, err)
	}
	for _, name := range names {
		if _, err := Load(dir, name, nil, nil); err != nil {
			t.Error(err)
		}
	}
}

func FuzzHostFile(f *testing.F) {
	for _, name := range []string{"lab", "rts", "confida"} {
		data, err := os.ReadFile("../../hosts/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Add([]byte("<<: {product: x}"))
	f.Add([]byte("product: |\n  x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := read("x.yaml", data)
		if err != nil {
			return
		}
		if l.finish(nil, nil) == nil && strings.ContainsAny(l.Host.Paths.App+l.Host.Product, " \t\n\x00'\"%*") {
			t.Errorf("accepted %q %q", l.Host.Paths.App, l.Host.Product)
		}
		l.Explain()
	})
}

// A host with one channel is reached by that alone.
func TestAdminChannelServesForBoth(t *testing.T) {
	l, err := Load(write(t, "product: vs\nchannels: {admin: {ssh: {host: h, user: root}}}\n"), "x", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Host.Channels.ForService().String(); got != "ssh root@h" {
		t.Errorf("service verbs go over %q", got)
	}
}
