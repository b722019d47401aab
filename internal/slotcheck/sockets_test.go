package slotcheck

import (
	"slices"
	"strings"
	"testing"
)

const unixTable = `Num       RefCount Protocol Flags    Type St Inode Path
00000000d9d6fd7f: 00000003 00000000 00000000 0001 03 10505786
00000000d8709a0a: 00000003 00000000 00000000 0001 03 9988099 /run/connected
000000009eb7d967: 00000002 00000000 00000000 0002 01 10489809 /run/user/70001/systemd/notify
00000000708213db: 00000002 00000000 00010000 0001 01   712 /run/a b
00000000708213db: 00000002 00000000 00010000 0001 01   713 /run/a b
00000000939ed6fd: 00000002 00000000 00010000 0005 01 9988143 @abstract
00000000939ed6fd: 00000002 00000000 00010000 0001 01 9988144 17 /run/relative
00000000939ed6fd: 00000002 00000000 00010000 0001 01 9988145 /opt/db.sock
00000000939ed6fd: 00000002 00000000 00010000 0001 01 9988146 /run/bell` + "\a" + `
00000000939ed6fd: 00000002 00000000 zzz 0001 01 9988147 /run/flags
`

func TestParseSockets(t *testing.T) {
	want := []string{"/run/a b", "/run/user/70001/systemd/notify", "/opt/db.sock"}
	if got := parseSockets(unixTable); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add(unixTable)
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range parseSockets(text) {
			if !strings.HasPrefix(name, "/") || !printable(name) {
				t.Errorf("%q came out", name)
			}
		}
	})
}
