# What every breakage script stands on. A script has broken(), which breaks the
# host, and undone() where the record alone does not take that back.
#
# The record lies outside everything that an audit is about. Before it touches
# anything a script says what: keep, keep_modes or adds. A record is whole or not
# there, so that a killed script can be undone.
umask 022
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
record=/var/lib/agentworks-lab/broken
app=/srv/vs
docs=$app/data/docs
libexec=/usr/local/libexec/agentworks
table=/etc/agentworks/slots.json
rule=/etc/sudoers.d/agentworks-slots
release=$(readlink -f $app/current || :)
launcher=$release/bin/video-studio-landlock-runner

# keep FILE...: content, owner, mode and ACL come back.
keep() { tar --acls --xattrs --numeric-owner --no-recursion -cpPf kept.new -- "$@" && mv kept.new kept.tar; }

# keep_accounts: the account database comes back, with its tools' own copies.
keep_accounts() { keep /etc/passwd /etc/passwd- /etc/shadow /etc/shadow- /etc/group /etc/group- /etc/gshadow /etc/gshadow-; }

# keep_modes PATH...: owner, mode and ACL come back, what is in it stays.
keep_modes() { getfacl -p -- "$@" >modes.new && mv modes.new modes; }

# adds PATH...: goes away.
adds() { printf '%s\n' "$@" >>added; }

# The user services, as their account has them.
user_services() { systemctl --user -M vs@ "$@"; }
restart_services() {
	user_services reset-failed vs-workspace vs-agent # else they may have been started too often
	user_services restart vs-workspace vs-agent
}
user_manager() { systemctl "$@" "user@$(id -u vs).service"; }

# replace_launcher puts the script on standard input in the launcher's place;
# for it $real is the launcher that was there.
replace_launcher() {
	real=$release/bin/before-$name
	keep "$launcher"
	adds "$real" "$launcher.new"
	cp -p "$launcher" "$real"
	{ printf '#!/bin/sh\nreal=%s\n' "$real"; cat; } >"$launcher.new"
	chown vs:vs "$launcher.new"
	chmod 0755 "$launcher.new"
	mv "$launcher.new" "$launcher"
}

undone() { :; }

# break_host NAME: does it once; the number keeps the order.
break_host() {
	name=$1
	[ -f "$launcher" ] && [ -f $libexec/slotctl ] ||
		{ echo "it is not provisioned, or no release is live: agentworks-deploy deploy lab" >&2; return 1; }
	mkdir -p "$record"
	for mine in "$record"/*-"$name"; do
		[ ! -d "$mine" ] || { echo "it is broken so already" >&2; return 1; }
	done
	last=$(ls "$record" | tail -n 1)
	last=${last%%-*}
	mine=$record/$(printf '%03d' $((1${last:-000} - 999)))-$name
	mkdir -m 0700 "$mine"
	cd "$mine"
	broken
}

# heal_host NAME: takes back what break_host did, also half-done.
heal_host() {
	name=$1
	mine=$(echo "$record"/*-"$name")
	cd "$mine"
	[ ! -f added ] || while read -r path; do rm -rf -- "$path"; done <added
	[ ! -f kept.tar ] || tar --acls --xattrs --numeric-owner -xpPf kept.tar
	[ ! -f modes ] || setfacl --restore=modes
	undone
	cd /
	rm -r "$mine"
}
