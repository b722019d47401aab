// Package hosts knows what a slot host is told to be: the host file's schema,
// the layers that make its effective values, and the layout (every path, owner
// and mode) that follows from them. It reads files and environment only, asks
// no host, and imports nothing else of this project but report.
package hosts

// Host holds the effective values of one host: defaults, then the host file,
// then AGENTWORKS_DEPLOY_*, then flags given explicitly. It crosses the channel
// to the on-host half as JSON, so it never holds a secret.
type Host struct {
	Name     string   `json:"name" yaml:"-"`
	Product  string   `json:"product" yaml:"product" must:"the service account and the prefix of its units" rule:"product" never:"root|slotctl|agentworks-deploy"`
	Tier     string   `json:"tier,omitempty" yaml:"tier" words:"single|team"` // single | team
	Paths    Paths    `json:"paths" yaml:"paths"`
	Slots    Slots    `json:"slots" yaml:"slots"`
	Channels Channels `json:"channels" yaml:"channels" must:""`
	Release  Release  `json:"release" yaml:"release"`
	Listen   Listen   `json:"listen" yaml:"listen"`
	Env      Env      `json:"env" yaml:"env"`
	Retired  []string `json:"retired,omitempty" yaml:"retired" rule:"unit"`
	// HostPrograms are interpreters' scripts outside the release that may run
	// as the service (slotcheck host-exec).
	HostPrograms []string `json:"host_programs,omitempty" yaml:"host_programs" rule:"path"`
	Vault        Vault    `json:"vault" yaml:"vault"`
}

// Paths are absolute; empty ones take the defaults of docs/formats.md.
type Paths struct {
	App  string `json:"app" yaml:"app" rule:"path"`
	Docs string `json:"docs" yaml:"docs" rule:"path"`
	Home string `json:"home" yaml:"home" rule:"path"`
}

// Slots says which slot accounts there are and how sudo reaches them.
type Slots struct {
	Mode        string `json:"mode" yaml:"mode" words:"off|optin|on"` // off | optin | on
	Prefix      string `json:"prefix" yaml:"prefix" rule:"prefix"`
	Count       int    `json:"count" yaml:"count" range:"1..998"`
	IDs         int    `json:"ids,omitempty" yaml:"ids" range:"0..2000000000"` // first id of the block of 1,000; 0: the first free one
	Sudo        string `json:"sudo,omitempty" yaml:"sudo" words:"|direct"`     // "" | direct
	RequestFile bool   `json:"request_file,omitempty" yaml:"request_file"`
	MaxCommands int    `json:"max_commands,omitempty" yaml:"max_commands" range:"1..10000"`
}

// Channels are the two ways a host is reached: as root and as the service.
type Channels struct {
	Admin   Channel `json:"admin" yaml:"admin" must:""`
	Service Channel `json:"service" yaml:"service"`
}

// ForService is the channel of service verbs: where the host file has none, the
// admin channel, on which root becomes the service account first.
func (c Channels) ForService() Channel {
	if c.Service == (Channel{}) {
		return c.Admin
	}
	return c.Service
}

// Channel has exactly one of its members set.
type Channel struct {
	Local *LocalChannel `json:"local,omitempty" yaml:"local"`
	Lab   *LabChannel   `json:"lab,omitempty" yaml:"lab"`
	SSH   *SSHChannel   `json:"ssh,omitempty" yaml:"ssh"`
	SSM   *SSMChannel   `json:"ssm,omitempty" yaml:"ssm"`
}

// String names the way and the place for a person: "ssh root@excellence".
func (c Channel) String() string {
	switch {
	case c.Local != nil:
		return "local"
	case c.Lab != nil:
		return "lab " + c.Lab.Name
	case c.SSH != nil && c.SSH.User != "":
		return "ssh " + c.SSH.User + "@" + c.SSH.Host
	case c.SSH != nil:
		return "ssh " + c.SSH.Host
	case c.SSM != nil:
		i := c.SSM.Instance
		for _, name := range []string{i.ID, i.Stack, i.Tag, c.SSM.Targets.Tag} {
			if name != "" {
				return "ssm " + name + " in " + c.SSM.Region
			}
		}
	}
	return "-"
}

// LocalChannel is the machine the command runs on.
type LocalChannel struct{}

// LabChannel is a lab on this machine, by name.
type LabChannel struct {
	Name string `json:"name" yaml:"name" must:"" rule:"lab"`
}

// SSHChannel is an OpenSSH destination; Host may be an alias of ~/.ssh/config.
type SSHChannel struct {
	Host string `json:"host" yaml:"host" must:"" rule:"ssh"`
	User string `json:"user,omitempty" yaml:"user" rule:"ssh?"`
	Port int    `json:"port,omitempty" yaml:"port" range:"0..65535"`
	Key  string `json:"key,omitempty" yaml:"key"` // used only where the file exists (case X-03)
}

// SSMChannel is an instance (or, by Targets, many) behind AWS Systems Manager.
type SSMChannel struct {
	Region   string      `json:"region" yaml:"region" must:"the AWS region of the instance, like us-west-2" rule:"region"`
	Profile  string      `json:"profile,omitempty" yaml:"profile" rule:"aws?"`
	Instance SSMInstance `json:"instance" yaml:"instance"`
	Targets  SSMTargets  `json:"targets,omitzero" yaml:"targets"`
	// Bucket is an S3 bucket for what is too large for a command; the instance
	// gets an address that reads one file for a few minutes.
	Bucket string `json:"bucket,omitempty" yaml:"bucket" rule:"bucket?"`
}

// Many says whether the channel leads to many instances.
func (s *SSMChannel) Many() bool { return s != nil && (s.Targets.Tag != "" || len(s.Targets.IDs) > 0) }

// SSMTargets are many instances of one product: those with a tag "key=value", or
// by id. MaxConcurrency and MaxErrors ("10" or "5%") are the service's own: how
// many run at once, and after how many failures no more are begun.
type SSMTargets struct {
	Tag            string   `json:"tag,omitempty" yaml:"tag" rule:"tag?"`
	IDs            []string `json:"ids,omitempty" yaml:"ids" rule:"instance"`
	MaxConcurrency string   `json:"max_concurrency,omitempty" yaml:"max_concurrency" rule:"share?"`
	MaxErrors      string   `json:"max_errors,omitempty" yaml:"max_errors" rule:"share?"`
}

// SSMInstance names an instance: literally, by a CloudFormation stack output,
// or by an EC2 tag "key=value".
type SSMInstance struct {
	ID     string `json:"id,omitempty" yaml:"id" rule:"instance?"`
	Stack  string `json:"stack,omitempty" yaml:"stack" rule:"aws?" needs:"output"`
	Output string `json:"output,omitempty" yaml:"output" rule:"aws?" needs:"stack"`
	Tag    string `json:"tag,omitempty" yaml:"tag" rule:"tag?"`
}

// Release says what a deploy restarts and asks. Keep is for the removal of old
// releases: nothing removes any yet.
type Release struct {
	Keep     int      `json:"keep" yaml:"keep" range:"1..1000"`
	Manager  string   `json:"manager" yaml:"manager" words:"user|system"` // user | system
	Services []string `json:"services" yaml:"services" rule:"unit"`
	Health   []string `json:"health" yaml:"health" rule:"url"`
}

// Listen says where the platform is reached and what guards it.
type Listen struct {
	Address      string   `json:"address,omitempty" yaml:"address" rule:"address?"`
	Auth         bool     `json:"auth,omitempty" yaml:"auth"`
	AllowedHosts []string `json:"allowed_hosts,omitempty" yaml:"allowed_hosts"`
}

// Env names keys of <app>/.env, never values.
type Env struct {
	Required []string `json:"required,omitempty" yaml:"required" rule:"env"`
}

// Vault says where secret names are looked up.
type Vault struct {
	Address       string `json:"address,omitempty" yaml:"address" rule:"url?" needs:"mount"`
	Namespace     string `json:"namespace,omitempty" yaml:"namespace"`
	CA            string `json:"ca,omitempty" yaml:"ca" rule:"file?"` // a PEM file on the side that asks
	Mount         string `json:"mount,omitempty" yaml:"mount" rule:"kv?"`
	Prefix        string `json:"prefix,omitempty" yaml:"prefix" rule:"kv?"`
	PlatformGroup string `json:"platform_group,omitempty" yaml:"platform_group" rule:"group?"`
	From          string `json:"from,omitempty" yaml:"from" words:"host|operator"` // host | operator
	// TokenFile or AppRole log in; without both VAULT_TOKEN of the agent's
	// environment (from host) or of one's own does.
	TokenFile string   `json:"token_file,omitempty" yaml:"token_file" rule:"file?"`
	AppRole   *AppRole `json:"approle,omitempty" yaml:"approle"`
}

// AppRole names the files that hold the two halves of a Vault AppRole login.
type AppRole struct {
	Mount        string `json:"mount,omitempty" yaml:"mount"` // default: approle
	RoleIDFile   string `json:"role_id_file" yaml:"role_id_file" must:"" rule:"file"`
	SecretIDFile string `json:"secret_id_file" yaml:"secret_id_file" must:"" rule:"file"`
}
