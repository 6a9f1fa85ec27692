{{/*
Connections to the database. Two templates take a dict with root and direct, which is true for what must reach PostgreSQL
itself as the owner of the schemas. Passwords are never part of a URL: the server reads them from a file.
*/}}

{{/* One part of a URL, percent-encoded. */}}
{{- define "pgsemaphore.encoded" -}}
{{- . | urlquery | replace "+" "%20" }}
{{- end }}

{{- define "pgsemaphore.databaseUrl" -}}
{{- $main := .root.Values.database }}
{{- $own := ternary $main.direct (dict) .direct }}
{{- if $own.url }}
{{- $own.url }}
{{- else if and $main.url (not $own.host) }}
{{- $main.url }}
{{- else }}
{{- $user := include "pgsemaphore.encoded" (default $main.user $own.user) }}
{{- $port := int (default $main.port $own.port) }}
{{- $name := include "pgsemaphore.encoded" (default $main.name $own.name) }}
{{- $host := default $main.host $own.host | trimPrefix "[" | trimSuffix "]" }}
{{- $host = ternary (printf "[%s]" $host) $host (contains ":" $host) }}
{{- printf "postgres://%s@%s:%d/%s?sslmode=%s" $user $host $port $name $main.sslmode }}
{{- if $main.ca.existingSecret }}&sslrootcert=/etc/pgsemaphore/database-ca/ca.crt{{ end }}
{{- end }}
{{- end }}

{{/* The Secret and its key with the password, as YAML; nothing if there is no password. */}}
{{- define "pgsemaphore.databasePassword" -}}
{{- $fullname := include "pgsemaphore.fullname" .root }}
{{- $main := .root.Values.database }}
{{- $own := ternary $main.direct (dict) .direct }}
{{- if $own.existingSecret }}
secret: {{ $own.existingSecret }}
key: {{ $own.existingSecretPasswordKey | quote }}
{{- else if $own.password }}
secret: {{ $fullname }}-database
key: direct-password
{{- else if $main.existingSecret }}
secret: {{ $main.existingSecret }}
key: {{ $main.existingSecretPasswordKey | quote }}
{{- else if $main.password }}
secret: {{ $fullname }}-database
key: password
{{- end }}
{{- end }}

{{- define "pgsemaphore.databaseEnv" -}}
- name: PGSEMAPHORE_DATABASE_URL
  value: {{ include "pgsemaphore.databaseUrl" . | quote }}
{{- if include "pgsemaphore.databasePassword" . }}
- name: PGSEMAPHORE_DATABASE_PASSWORD_FILE
  value: /etc/pgsemaphore/database/password
{{- end }}
- name: PGSEMAPHORE_LOG
  value: {{ .root.Values.log | quote }}
{{- end }}

{{- define "pgsemaphore.databaseVolumes" -}}
{{- $password := include "pgsemaphore.databasePassword" . | fromYaml }}
{{- if $password.secret }}
{{ include "pgsemaphore.secretVolume" (dict "name" "database" "secret" $password.secret "items" (dict "password" $password.key)) }}
{{- end }}
{{- with .root.Values.database.ca }}
{{- if .existingSecret }}
{{ include "pgsemaphore.secretVolume" (dict "name" "database-ca" "secret" .existingSecret "items" (dict "ca.crt" .key)) }}
{{- end }}
{{- end }}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "pgsemaphore.databaseMounts" -}}
{{- if include "pgsemaphore.databasePassword" . }}
{{ include "pgsemaphore.mount" "database" }}
{{- end }}
{{- if .root.Values.database.ca.existingSecret }}
{{ include "pgsemaphore.mount" "database-ca" }}
{{- end }}
{{- with .root.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of a password, for annotations: more people read them than secrets, so that guessing it must be slow (scrypt). */}}
{{- define "pgsemaphore.passwordChecksum" -}}
{{- derivePassword 1 "maximum" . "pgsemaphore" "checksum" | sha256sum }}
{{- end }}
