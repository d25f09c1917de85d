{{- /* The settings that are no secrets, as YAML: the given ones, and what follows from other values. */ -}}

{{- define "ptopt.settings" -}}
{{- $found := dict -}}
{{- if .Values.ingress.enabled -}}
{{- $_ := set $found "PTOPT_PUBLIC_URL" (printf "https://%s" .Values.ingress.host) -}}
{{- else if .Values.gateway.enabled -}}
{{- $_ := set $found "PTOPT_PUBLIC_URL" (printf "https://%s" .Values.gateway.host) -}}
{{- end -}}
{{- if .Values.modelServer.enabled -}}
{{- $_ := set $found "PTOPT_MODEL_SERVER" (printf "http://%s-model-server:8000" (include "ptopt.fullname" .)) -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- /* A number of the values is a float: 50000 would be written as 5e+04. */ -}}
{{- $_ := set $found $name (ternary (toString (int64 $value)) (toString $value) (and (kindIs "float64" $value) (eq (floor $value) $value))) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{- /* What cannot work is refused, by name. Called once, by the ConfigMap of the settings. */ -}}
{{- define "ptopt.check" -}}
{{- $values := .Values -}}
{{- $model := or $values.settings.PTOPT_MODEL $values.settings.PTOPT_MODEL_REGISTRY -}}
{{- if and $values.gpuWorker.enabled $values.modelServer.enabled -}}
{{- fail "gpuWorker.enabled and modelServer.enabled: choose one" -}}
{{- end -}}
{{- if and (or $values.gpuWorker.enabled $values.modelServer.enabled) (not $model) -}}
{{- fail "a model needs settings.PTOPT_MODEL or settings.PTOPT_MODEL_REGISTRY" -}}
{{- end -}}
{{- if and $values.modelServer.enabled (not $values.modelServer.model) -}}
{{- fail "modelServer.model: name the base model" -}}
{{- end -}}
{{- if and $values.ingress.enabled $values.gateway.enabled -}}
{{- fail "ingress.enabled and gateway.enabled: choose one" -}}
{{- end -}}
{{- if and $values.gateway.enabled (not $values.gateway.parentRefs) -}}
{{- fail "gateway.parentRefs: name the Gateway" -}}
{{- end -}}
{{- if and $values.images.modelServer.registry (not (or $values.images.modelServer.tag $values.images.modelServer.digest)) -}}
{{- fail "images.modelServer: set tag or digest" -}}
{{- end -}}
{{- if and $values.keda.enabled (contains "+psycopg" (toString $values.secretValues.PTOPT_DATABASE_URL)) -}}
{{- fail "secretValues.PTOPT_DATABASE_URL: KEDA reads postgresql://USER:PASSWORD@HOST/NAME, without +psycopg; so does the service" -}}
{{- end -}}
{{- if and $values.secretValues (eq $values.mode "distributed") -}}
{{- if not (or $values.postgresql.enabled $values.secretValues.PTOPT_DATABASE_URL) -}}
{{- fail "secretValues.PTOPT_DATABASE_URL: name the database, or set postgresql.enabled" -}}
{{- end -}}
{{- if not (or $values.valkey.enabled $values.secretValues.PTOPT_BROKER_URL) -}}
{{- fail "secretValues.PTOPT_BROKER_URL: name the broker, or set valkey.enabled" -}}
{{- end -}}
{{- end -}}
{{- if eq $values.mode "embedded" -}}
{{- range $name := list "gpuWorker" "modelServer" "keda" "postgresql" "valkey" -}}
{{- if (get $values $name).enabled -}}
{{- fail (printf "%s.enabled: not with mode embedded" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
