package accounts

import (
	"errors"
	"strings"
	"testing"
)

func TestP03OnlyTheSlotsOwnAccountIsTheSlot(t *testing.T) {
	const home = "/srv/vs/slots/home/slot09"
	for name, c := range map[string]struct{ passwd, group, want string }{
		"as provisioned":        {"slot09:x:70009:70009::" + home + ":/x\n", "slot09:x:70009:\n", ""},
		"with ids of its own":   {"slot09:x:1009:1009::" + home + ":/x\n", "slot09:x:1009:\n", ""},
		"made anew for eve":     {"slot09:x:12345:12345::/home/eve:/x\n", "slot09:x:12345:\n", "home /home/eve"},
		"root by another name":  {"slot09:x:0:70009::" + home + ":/x\n", "slot09:x:70009:\n", "uid 0"},
		"another primary group": {"slot09:x:70009:100::" + home + ":/x\n", "slot09:x:70009:\nusers:x:100:\n", "primary group"},
		"no group of its name":  {"slot09:x:70009:100::" + home + ":/x\n", "users:x:100:\n", "users"},
		"a twin by uid":         {"slot09:x:70009:70009::" + home + ":/x\neve:x:70009:100::/home/eve:/x\n", "slot09:x:70009:\n", "share uid"},
		"a twin by gid":         {"slot09:x:70009:70009::" + home + ":/x\n", "slot09:x:70009:\neve:x:70009:\n", "share gid"},
		"no account":            {"", "slot09:x:70009:\n", "not there"},
		"no group":              {"slot09:x:70009:70009::" + home + ":/x\n", "", "not there"},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := Load(t.Context(), scripted(t, map[string]string{"passwd": c.passwd, "group": c.group}))
			if err != nil {
				t.Fatal(err)
			}
			err = db.CheckSlot("slot09", home)
			if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if missing := errors.Is(err, ErrMissing); missing != (c.want == "not there") {
				t.Errorf("missing: %v", missing)
			}
		})
	}
}
