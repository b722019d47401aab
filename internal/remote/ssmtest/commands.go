package ssmtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const document = "AWS-RunShellScript"

func (s *Server) send(r *http.Request, in input) (any, *fault) {
	parameters := in.object("Parameters")
	ids := in.list("InstanceIds")
	switch {
	case in.text("DocumentName") != document:
		return bad("InvalidDocument", "document %q does not exist", in.text("DocumentName"))
	case len(ids) > maxIDs:
		return bad("ValidationException", "1 validation error detected: Value at 'instanceIds' failed to satisfy constraint: Member must have length less than or equal to %d", maxIDs)
	case len(in.text("Comment")) > 100:
		return bad("ValidationException", "1 validation error detected: Value at 'comment' failed to satisfy constraint: Member must have length less than or equal to 100")
	case in.number("TimeoutSeconds", 3600) < 30 || in.number("TimeoutSeconds", 3600) > 2592000:
		return bad("ValidationException", "1 validation error detected: Value at 'timeoutSeconds' failed to satisfy constraint")
	}
	limit := 3600
	if given := parameters.list("executionTimeout"); len(given) > 0 {
		n, err := strconv.Atoi(given[0])
		if err != nil || n > 172800 {
			return bad("InvalidParameters", "executionTimeout %q", given[0])
		}
		if n >= 5 { // the agent replaces smaller values without a word
			limit = n
		}
	}
	_, region := scope(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if targets := in.objects("Targets"); len(targets) > 0 {
		ids = s.matching(targets)
	}
	for _, id := range ids {
		if _, ok := s.instances[id]; !ok || region != s.Region {
			return bad("InvalidInstanceId", "Instances [[%s]] not in a valid state for account 111111111111", id)
		}
	}
	script := strings.Join(parameters.list("commands"), "\n")
	s.sent = append(s.sent, script)
	if s.faults.Script != nil {
		script = s.faults.Script(script)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &command{id: uuid(), comment: in.text("Comment"), ctx: ctx, cancel: cancel, begun: time.Now(), order: ids, invocations: map[string]*invocation{}, emptyLists: s.faults.EmptyLists}
	s.commands[c.id] = c
	for _, id := range ids {
		inv := &invocation{status: "Pending", details: "Pending", code: -1, notYet: s.faults.NotYet}
		c.invocations[id] = inv
		s.running.Add(1)
		go s.execute(c, inv, id, script, time.Duration(limit)*time.Second, s.faults.Details[id], s.faults.Stay[id])
	}
	return map[string]any{"Command": map[string]any{
		"CommandId": c.id, "DocumentName": document, "Comment": c.comment, "InstanceIds": ids, "Status": "Pending", "StatusDetails": "Pending",
		"TargetCount": len(ids), "CompletedCount": 0, "ErrorCount": 0, "RequestedDateTime": float64(c.begun.UnixMilli()) / 1000, "Parameters": in["Parameters"],
	}}, nil
}

func (s *Server) matching(targets []input) (ids []string) {
	for _, id := range s.order {
		all := true
		for _, t := range targets {
			key, ok := strings.CutPrefix(t.text("Key"), "tag:")
			all = all && ok && slices.Contains(t.list("Values"), s.instances[id][key])
		}
		if all {
			ids = append(ids, id)
		}
	}
	return ids
}

// statusOf is the plain status that a detailed one belongs to.
var statusOf = map[string]string{
	"Success": "Success", "Failed": "Failed", "Cancelled": "Cancelled", "Terminated": "Failed", "Undeliverable": "Failed", "InvalidPlatform": "Failed",
	"AccessDenied": "Failed", "DeliveryTimedOut": "TimedOut", "ExecutionTimedOut": "TimedOut",
}

func (s *Server) execute(c *command, inv *invocation, id, script string, limit time.Duration, forced string, stay bool) {
	defer s.running.Done()
	finish := func(details, stdout, stderr string, code int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		inv.status, inv.details, inv.stdout, inv.stderr, inv.code = statusOf[details], details, stdout, stderr, code
	}
	if forced != "" && forced != "ExecutionTimedOut" && forced != "Terminated" {
		finish(forced, "", "", -1)
		return
	}
	s.mu.Lock()
	inv.status, inv.details = "InProgress", "InProgress"
	run := s.run
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	if stay {
		<-ctx.Done()
		finish("Cancelled", "", "", -1)
		return
	}
	stdout, stderr, code := run(ctx, id, script)
	switch {
	case forced != "":
		finish(forced, stdout, stderr, -1)
	case c.ctx.Err() != nil:
		finish("Cancelled", stdout, stderr, code)
	case ctx.Err() != nil:
		finish("ExecutionTimedOut", stdout, stderr, code)
	case code != 0:
		finish("Failed", stdout, stderr, code)
	default:
		finish("Success", stdout, stderr, 0)
	}
}

func (s *Server) get(_ *http.Request, in input) (any, *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.commands[in.text("CommandId")]
	if c == nil {
		return bad("InvalidCommandId", "no such command")
	}
	id := in.text("InstanceId")
	inv := c.invocations[id]
	if inv == nil {
		return bad("InvocationDoesNotExist", "")
	}
	if inv.notYet > 0 {
		inv.notYet--
		return bad("InvocationDoesNotExist", "")
	}
	return map[string]any{
		"CommandId": c.id, "InstanceId": id, "Comment": c.comment, "DocumentName": document, "PluginName": "aws:runShellScript",
		"ResponseCode": inv.code, "Status": inv.status, "StatusDetails": inv.details,
		"StandardOutputContent": cut(s.shown(id, inv), StdoutLimit), "StandardErrorContent": cut(inv.stderr, StderrLimit), "StandardOutputUrl": "", "StandardErrorUrl": "",
		"ExecutionStartDateTime": c.begun.UTC().Format("2006-01-02T15:04:05.000Z"),
	}, nil
}

func (s *Server) shown(id string, inv *invocation) string {
	if s.faults.Stdout != nil {
		return s.faults.Stdout(id, inv.stdout)
	}
	return inv.stdout
}

func cut(out string, limit int) string {
	if len(out) <= limit {
		return out
	}
	return out[:limit-len(cutSuffix)] + cutSuffix
}

func (s *Server) list(_ *http.Request, in input) (any, *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := in.number("MaxResults", 50)
	if size < 1 || size > 50 {
		return bad("ValidationException", "Value at 'maxResults' failed to satisfy constraint")
	}
	c := s.commands[in.text("CommandId")]
	if c == nil {
		return bad("InvalidCommandId", "no such command")
	}
	if c.emptyLists > 0 {
		c.emptyLists--
		return map[string]any{"CommandInvocations": []any{}}, nil
	}
	ids := c.order
	if one := in.text("InstanceId"); one != "" {
		ids = []string{one}
	}
	from := 0
	if token := in.text("NextToken"); token != "" {
		n, err := strconv.Atoi(token)
		if err != nil || n > len(ids) {
			return bad("InvalidNextToken", "the token is not valid")
		}
		from = n
	}
	page := ids[from:min(from+size, len(ids))]
	out := map[string]any{}
	items := []any{}
	for _, id := range page {
		inv := c.invocations[id]
		if inv == nil {
			continue
		}
		item := map[string]any{"CommandId": c.id, "InstanceId": id, "Comment": c.comment, "DocumentName": document, "Status": inv.status, "StatusDetails": inv.details, "CommandPlugins": []any{},
			"RequestedDateTime": float64(c.begun.UnixMilli()) / 1000}
		if in["Details"] == true {
			text := s.shown(id, inv)
			if inv.stderr != "" {
				text += "\n----------ERROR-------\n" + inv.stderr
			}
			item["CommandPlugins"] = []any{map[string]any{"Name": "aws:runShellScript", "Status": inv.status, "StatusDetails": inv.details, "ResponseCode": inv.code, "Output": cut(text, ListLimit)}}
		}
		items = append(items, item)
	}
	out["CommandInvocations"] = items
	if next := from + len(page); next < len(ids) {
		out["NextToken"] = strconv.Itoa(next)
	}
	return out, nil
}

func (s *Server) cancelCommand(_ *http.Request, in input) (any, *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.commands[in.text("CommandId")]
	if c == nil {
		return bad("InvalidCommandId", "no such command")
	}
	c.cancel()
	return map[string]any{}, nil
}

func (s *Server) describe(r *http.Request, in input) (any, *fault) {
	_, region := scope(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	size := in.number("MaxResults", 50)
	if size < 5 || size > 50 {
		return bad("ValidationException", "Value at 'maxResults' failed to satisfy constraint")
	}
	var ids []string
	for _, id := range s.order {
		if region == s.Region && s.passes(id, in.objects("Filters")) {
			ids = append(ids, id)
		}
	}
	from, _ := strconv.Atoi(in.text("NextToken"))
	page := ids[min(from, len(ids)):min(from+size, len(ids))]
	list := []any{}
	for _, id := range page {
		ping := "Online"
		if s.faults.Offline[id] {
			ping = "ConnectionLost"
		}
		list = append(list, map[string]any{"InstanceId": id, "PingStatus": ping, "AgentVersion": "3.3.987.0", "PlatformType": "Linux", "PlatformName": "Debian GNU/Linux", "ResourceType": "EC2Instance",
			"LastPingDateTime": float64(time.Now().UnixMilli()) / 1000})
	}
	out := map[string]any{"InstanceInformationList": list}
	if next := from + len(page); next < len(ids) {
		out["NextToken"] = strconv.Itoa(next)
	}
	return out, nil
}

func (s *Server) passes(id string, filters []input) bool {
	for _, f := range filters {
		key, values := f.text("Key"), f.list("Values")
		if key == "InstanceIds" && !slices.Contains(values, id) {
			return false
		}
		if tag, ok := strings.CutPrefix(key, "tag:"); ok && !slices.Contains(values, s.instances[id][tag]) {
			return false
		}
	}
	return true
}

// cloudFormation answers DescribeStacks in the query protocol.
func (s *Server) cloudFormation(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("Action") != "DescribeStacks" {
		http.Error(w, "unknown action", http.StatusBadRequest)
		return
	}
	name := r.FormValue("StackName")
	w.Header().Set("Content-Type", "text/xml")
	s.mu.Lock()
	defer s.mu.Unlock()
	outputs, ok := s.stacks[name]
	if !ok {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `<ErrorResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><Error><Type>Sender</Type><Code>ValidationError</Code><Message>%s</Message></Error><RequestId>1</RequestId></ErrorResponse>`,
			escape("Stack with id "+name+" does not exist"))
		return
	}
	var members strings.Builder
	for k, v := range outputs {
		fmt.Fprintf(&members, "<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>", escape(k), escape(v))
	}
	fmt.Fprintf(w, `<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult><Stacks><member><StackName>%s</StackName><CreationTime>2026-01-01T00:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus><Outputs>%s</Outputs></member></Stacks></DescribeStacksResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></DescribeStacksResponse>`,
		escape(name), members.String())
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

func uuid() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	h := hex.EncodeToString(b)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}
