// Package platform reads what the platform itself says on a host: who its
// accounts are, and whether a release still holds a tool that was retired. It
// reads and changes nothing, and may import safefs only.
package platform

import (
	"encoding/json"
	"errors"
	"fmt"

	"agentworks-deploy/internal/safefs"
)

// maxUsersFile bounds what is read of users.json.
const maxUsersFile = 16 << 20

// EnabledUsers gives the ids of the enabled accounts in users.json at file;
// fs.ErrNotExist where there is none. Its errors hold nothing of the content.
func EnabledUsers(file string) ([]string, error) {
	data, err := safefs.ReadFile(file, maxUsersFile)
	if err != nil {
		return nil, err
	}
	return ParseUsers(data)
}

// ParseUsers gives the ids of the enabled accounts in a users.json. Disabled
// ones and those without an id run no commands (case V-01). Its errors hold
// nothing of the content.
func ParseUsers(data []byte) ([]string, error) {
	var doc struct {
		Users []struct {
			ID       string `json:"id"`
			Disabled bool   `json:"disabled"`
		} `json:"users"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		// The decoder's text may quote the file, so only the place is told.
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, fmt.Errorf("not JSON at byte %d", syntax.Offset)
		}
		return nil, errors.New("not the expected JSON")
	}
	var ids []string
	for _, u := range doc.Users {
		if u.ID != "" && !u.Disabled {
			ids = append(ids, u.ID)
		}
	}
	return ids, nil
}
