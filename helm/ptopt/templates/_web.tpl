{{- /* Ports and probes of what serves HTTP. Readiness does not depend on the broker: deliveries are stored without it. */ -}}
{{- define "ptopt.webProbes" -}}
ports:
  - name: http
    containerPort: 8000
startupProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

{{- /* Which component serves HTTP. */ -}}
{{- define "ptopt.web" -}}
{{- ternary "embedded" "bot" (eq .Values.mode "embedded") -}}
{{- end -}}

{{- /* The pages that are reached from outside, as JSON. */ -}}
{{- define "ptopt.pages" -}}
{{- $pages := list -}}
{{- if ne (toString .root.Values.settings.PTOPT_DASHBOARD) "false" -}}
{{- $pages = append $pages "/dashboard" -}}
{{- end -}}
{{- if .setup -}}
{{- $pages = append $pages "/setup" -}}
{{- end -}}
{{- toJson $pages -}}
{{- end -}}
