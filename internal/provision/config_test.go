package provision

import (
	"bytes"
	"encoding/json"
	"testing"

	"agentworks-deploy/internal/hosts"
)

// FuzzConfigKeepsWhatItDoesNotKnow: whatever stood in slotctl.json, the result is
// JSON with our keys, every other key is as it was (case P-10), and a second
// run changes nothing.
func FuzzConfigKeepsWhatItDoesNotKnow(f *testing.F) {
	f.Add([]byte(`{"slot_docker": true, "x": [1, {"y": null}], "slot_prefix": 7}`))
	f.Add([]byte(`{"a":1}{"b":2}`))
	f.Add([]byte("{\"\\u0061\":1,\"a\":2,\"\xff\":3}"))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, have []byte) {
		host := hosts.Host{Product: "vs"}
		r := &run{Request: Request{Host: host}, l: host.Layout()}
		want, replaced := r.config(have)
		var before, after map[string]any
		if err := json.Unmarshal(want, &after); err != nil {
			t.Fatalf("%q became %q: %v", have, want, err)
		}
		if again, replaced := r.config(want); replaced || !bytes.Equal(again, want) {
			t.Errorf("%q became %q and then %q", have, want, again)
		}
		if after["docs_root"] != "/srv/vs/data/docs" {
			t.Errorf("%q became %q", have, want)
		}
		if replaced || json.Unmarshal(have, &before) != nil {
			return
		}
		own := map[string]bool{}
		for _, s := range r.ownSettings() {
			own[s.key] = true
		}
		for key, value := range before {
			a, _ := json.Marshal(value)
			b, _ := json.Marshal(after[key])
			if !own[key] && !bytes.Equal(a, b) {
				t.Errorf("%q: %s became %s", key, a, b)
			}
		}
	})
}
