package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"agentworks-deploy/internal/units"
)

// maxHealth bounds a health document.
const maxHealth = 1 << 20

// healthDocument is what a health answer says that matters here.
type healthDocument struct {
	Healthy bool
	Idle    bool // by the drain block; a service without one is idle
	Active  int
}

// parseHealth judges a health answer by its content: a JSON object that says
// status "healthy" or ok true, and says neither's contrary (case B41). Anything
// else, a web page above all, is an error.
func parseHealth(b []byte) (healthDocument, error) {
	var d struct {
		Status *string `json:"status"`
		OK     *bool   `json:"ok"`
		Drain  *struct {
			Idle   *bool `json:"idle"`
			Active int   `json:"active"`
		} `json:"drain"`
	}
	if t := bytes.TrimLeft(b, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return healthDocument{}, fmt.Errorf("the answer is not a JSON object: %.40q", t)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return healthDocument{}, fmt.Errorf("the answer is not a health document: %w", err)
	}
	doc := healthDocument{Idle: true}
	if d.Drain != nil {
		doc.Active = d.Drain.Active
		doc.Idle = d.Drain.Idle != nil && *d.Drain.Idle
	}
	switch {
	case d.OK != nil && !*d.OK:
		return doc, errors.New("ok is false")
	case d.Status != nil && *d.Status != "healthy" && !(d.OK != nil && *d.OK):
		return doc, fmt.Errorf("status is %.40q", *d.Status)
	case d.Status == nil && d.OK == nil:
		return doc, errors.New("the answer says neither status nor ok")
	}
	doc.Healthy = true
	return doc, nil
}

// Health judges a release's services after their restart.
type Health struct {
	Manager  *units.Manager
	Units    []string
	URLs     []string
	Deadline time.Duration // 60 s
	Every    time.Duration // a second
	Samples  int           // three equal ones in a row
	Since    time.Time     // when the services were restarted; zero where they were not
	Log      io.Writer
}

// sample is what has to stay the same: the units' states, processes and
// restart counts. Documents may count on; each only has to be healthy.
type sample []units.UnitState

// judge waits until Samples samples in a row are equal and good, and fails at
// the deadline, or as soon as a unit restarts by itself or gives up (case B40).
func (h *Health) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.Deadline)
	defer cancel()
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true}, // no proxy: the service listens on this host
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       5 * time.Second,
	}
	tick := time.NewTicker(h.Every)
	defer tick.Stop()
	var first, last sample
	steady := 0
	why := errors.New("no sample was taken")
	for {
		now, err := h.Manager.States(ctx, h.Units)
		if err == nil {
			if first == nil {
				first = now
			}
			if err := h.lost(ctx, first, now); err != nil {
				return err
			}
			err = h.good(ctx, client, now)
		}
		switch {
		case err != nil:
			steady, last = 0, nil
			if ctx.Err() == nil { // keep the reason, not the deadline's own noise
				why = err
			}
		case slices.Equal(now, last):
			steady++
		default:
			steady, last = 1, now
		}
		if steady >= h.Samples {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("not healthy within %s: %w", h.Deadline, why)
			}
			return ctx.Err()
		}
	}
}

// lost tells when waiting on has no use: a unit restarted by itself since the
// first look, or its manager gave it up or skipped its start.
func (h *Health) lost(ctx context.Context, first, now sample) error {
	for i, u := range now {
		switch {
		case u.Restarts > first[i].Restarts:
			return fmt.Errorf("%s restarted by itself %d time(s) since the deploy restarted it", u.Name, u.Restarts-first[i].Restarts)
		case u.Active == "failed":
			return errors.New(u.String())
		case u.Active == "inactive" && u.Unmet:
			conditions, err := h.Manager.Conditions(ctx, u.Name)
			conditions = slices.DeleteFunc(conditions, func(c string) bool { // what is there is not why
				_, path, ok := strings.Cut(c, "PathExists=")
				_, absent := os.Stat(path)
				return ok && absent == nil
			})
			if err != nil || len(conditions) == 0 {
				return errors.New(u.String())
			}
			return fmt.Errorf("%s: %s", u, strings.Join(conditions, ", "))
		}
	}
	return nil
}

func (h *Health) good(ctx context.Context, client *http.Client, now sample) error {
	for _, u := range now {
		if !u.Running() {
			return errors.New(u.String())
		}
	}
	for _, url := range h.URLs {
		if _, err := ask(ctx, client, url); err != nil {
			return fmt.Errorf("%s: %w", url, err)
		}
	}
	return nil
}

// ask fetches one health document.
func ask(ctx context.Context, client *http.Client, url string) (healthDocument, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return healthDocument{}, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return healthDocument{}, unwrapURL(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return healthDocument{}, fmt.Errorf("the answer is %s", resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxHealth+1))
	if err != nil {
		return healthDocument{}, err
	}
	if len(b) > maxHealth {
		return healthDocument{}, fmt.Errorf("the answer is larger than %d bytes", maxHealth)
	}
	return parseHealth(b)
}

// unwrapURL drops the method and URL that net/http puts before its reason.
func unwrapURL(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// journals writes the last n journal lines of each unit that is not well, of this
// start only, so that nobody has to log in to see why (case B43).
func (h *Health) journals(ctx context.Context, n int) {
	states, err := h.Manager.States(ctx, h.Units)
	if err != nil {
		fmt.Fprintf(h.Log, "%v\n", err)
		return
	}
	sick := slices.DeleteFunc(slices.Clone(states), func(u units.UnitState) bool { return u.Running() && u.Restarts == 0 })
	if len(sick) == 0 {
		sick = states // all run, so the answer is what is wrong: show everybody
	}
	for _, u := range sick {
		lines, err := h.Manager.Journal(ctx, u.Name, n, h.Since)
		switch {
		case err != nil:
			fmt.Fprintf(h.Log, "%s; %v; as root: %s\n", u, err, h.Manager.JournalCommand(u.Name, n, h.Since))
			continue
		case len(lines) == 0 && h.Since.IsZero():
			fmt.Fprintf(h.Log, "%s; its journal is empty\n", u)
		case len(lines) == 0:
			fmt.Fprintf(h.Log, "%s; it has said nothing in its journal since this start\n", u)
		case h.Since.IsZero():
			fmt.Fprintf(h.Log, "%s; the last of its journal:\n", u)
		default:
			fmt.Fprintf(h.Log, "%s; the last of its journal since this start:\n", u)
		}
		for _, l := range lines {
			fmt.Fprintf(h.Log, "  %s: %s\n", strings.TrimSuffix(u.Name, ".service"), l)
		}
	}
}
