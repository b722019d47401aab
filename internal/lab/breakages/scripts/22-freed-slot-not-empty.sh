# story: a slot was released with files of its user in its home, which the next user would get
# rows: slot-hygiene
# level: full
broken() {
	adds $app/slots/home/slot49/notes.txt
	echo "what somebody wrote" >$app/slots/home/slot49/notes.txt
	chown slot49:slot49 $app/slots/home/slot49/notes.txt
}
